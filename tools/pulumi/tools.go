//go:build tools

// Package tools pins the Pulumi CLI that set-up builds where no other can be had.
package tools

import _ "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi"
