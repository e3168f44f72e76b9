// Command deploycheck checks deployment files strictly, with the parser and the types of
// the program that will read them. It also checks what deploy/ promises. Images and
// actions are pinned, and containers have no privileges.
//
//	deploycheck kubernetes FILE...   rendered objects
//	deploycheck dockerfile FILE      a container file
//	deploycheck compose FILE         a compose file
//	deploycheck workflow FILE...     workflows of GitHub Actions
//	deploycheck action FILE          a composite action of GitHub Actions
//
// FILE may be - for standard input. The command prints the decoded files as JSON. It
// prints each problem on a line of stderr, and then exits with 1.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
)

// checks maps each kind of file to the function that checks the file. The function
// returns the decoded file and all problems.
var checks = map[string]func(name string, data []byte) (any, []error){
	"kubernetes": kubernetes,
	"dockerfile": dockerfile,
	"compose":    composeFile,
	"workflow":   workflow,
	"action":     action,
}

func main() {
	if len(os.Args) < 3 || checks[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: deploycheck kubernetes|dockerfile|compose|workflow|action FILE...")
		os.Exit(2)
	}
	failed := false
	for _, name := range os.Args[2:] {
		read, errs := check(os.Args[1], name)
		for _, err := range errs {
			failed = true
			fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		}
		if read != nil {
			if err := json.NewEncoder(os.Stdout).Encode(read); err != nil {
				failed = true
				fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
			}
		}
	}
	if failed {
		os.Exit(1)
	}
}

func check(kind, name string) (any, []error) {
	var data []byte
	var err error
	if name == "-" {
		data, err = io.ReadAll(os.Stdin)
	} else {
		data, err = os.ReadFile(name)
	}
	if err != nil {
		return nil, []error{err}
	}
	return checks[kind](name, data)
}
