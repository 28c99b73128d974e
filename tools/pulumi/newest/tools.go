//go:build tools

// Package tools pins the newest Pulumi CLI that `make test-pulumi` tests.
package tools

import _ "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi"
