//go:build tools

// Package tools pins the endpoint picker of `make test-router`, built on request: go.sum checks every byte.
package tools

import (
	_ "sigs.k8s.io/gateway-api-inference-extension/cmd/epp"
)
