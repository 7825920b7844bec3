//go:build tools

// Package tools pins the programs of the test control plane: go.sum checks every byte of what is built.
package tools

import (
	_ "github.com/prometheus/prometheus/cmd/prometheus"
	_ "github.com/prometheus/prometheus/cmd/promtool"
)
