//! Policies by hand: the HPA's algorithm, and each loop on a small fleet whose load is made request by request.

mod hpa;
mod keda;
mod loops;
