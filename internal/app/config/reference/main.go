// Command reference writes the reference page of ocibridge.hcl from the types
// that decode the file.
package main

import (
	"fmt"
	"os"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: reference SOURCE-FILE PAGE")
		os.Exit(2)
	}
	page, err := page(os.Args[1])
	if err == nil {
		err = os.WriteFile(os.Args[2], page, 0o644)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		os.Exit(1)
	}
}
