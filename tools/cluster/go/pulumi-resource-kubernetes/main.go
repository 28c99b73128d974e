// The plugin of pulumi-kubernetes, for `make bench-cluster` and for programs that make cluster objects beside jobs. The official
// binary holds a schema of all kinds for `pulumi package get-schema`, which nothing here asks for.
package main

import provider "github.com/pulumi/pulumi-kubernetes/provider/v4/pkg/provider"

func main() {
	provider.Serve("kubernetes", "4.34.2", []byte(`{"name":"kubernetes"}`), []byte(`{}`))
}
