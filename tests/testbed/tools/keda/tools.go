//go:build tools

// Package tools pins programs that read what this program writes, built on request: go.sum checks every byte.
package tools

import (
	_ "github.com/kedacore/keda/v2/cmd/adapter"
	_ "github.com/kedacore/keda/v2/cmd/operator"
)
