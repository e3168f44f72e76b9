// Command terraform-ls prints what the module registry client of terraform-ls reads of a version of a module. The client is an
// internal package of terraform-ls, which only packages below the path of that module may import: hence the path of this one.
//
// Usage: terraform-ls URL NAMESPACE/NAME/SYSTEM CONSTRAINT
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/hashicorp/go-version"
	"github.com/hashicorp/terraform-ls/internal/registry"
	tfaddr "github.com/hashicorp/terraform-registry-address"
)

func main() {
	if err := run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(url, address, constraint string) error {
	client := registry.NewClient()
	client.BaseURL = url
	a, err := tfaddr.ParseModuleSource(address)
	if err != nil {
		return err
	}
	constraints, err := version.NewConstraint(constraint)
	if err != nil {
		return err
	}
	found, err := client.GetModuleData(context.Background(), a, constraints)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(found)
}
