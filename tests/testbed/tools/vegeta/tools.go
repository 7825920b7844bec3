//go:build tools

// Package tools pins a load generator of constant rate, built on request: go.sum checks every byte of what is built.
package tools

import (
	_ "github.com/tsenart/vegeta/v12"
)
