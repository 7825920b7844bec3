//go:build tools

// Package tools pins a registry in memory, built on request: go.sum checks every byte.
package tools

import (
	_ "github.com/google/go-containerregistry/cmd/registry"
)
