//go:build tools

// Package tools pins a program that uses what this project publishes, built on request: go.sum checks every byte.
package tools

import (
	_ "github.com/kedacore/keda/v2/cmd/adapter"
	_ "github.com/kedacore/keda/v2/cmd/operator"
)
