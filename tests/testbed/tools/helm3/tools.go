//go:build tools

// Package tools pins the older Helm, which many still install with, built on request: go.sum checks every byte.
package tools

import (
	_ "helm.sh/helm/v3/cmd/helm"
)
