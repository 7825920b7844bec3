//go:build tools

// Package tools pins the linter of workflows, built on request: go.sum checks every byte.
package tools

import (
	_ "github.com/rhysd/actionlint/cmd/actionlint"
)
