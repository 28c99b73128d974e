// Package main is kubectl: its module has the command as a library, and the program is part of all of Kubernetes.
package main

import (
	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
)

func main() { util.CheckErr(cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand())) }
