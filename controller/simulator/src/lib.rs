//! A simulated fleet of model servers for the same `decide` that runs in the cluster, with a clock of its own. Nothing
//! is here yet: the crate holds the place of `wva simulate` in the house, below `wva-scaling` alone.
