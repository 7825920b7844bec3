//go:build tools

// Package tools pins the program that renders and installs the chart, built on request: go.sum checks every byte.
package tools

import (
	_ "helm.sh/helm/v4/cmd/helm"
)
