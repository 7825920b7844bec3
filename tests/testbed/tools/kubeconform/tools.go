//go:build tools

// Package tools pins the program that judges manifests by their schemas, built on request: go.sum checks every byte.
package tools

import (
	_ "github.com/yannh/kubeconform/cmd/kubeconform"
)
