package main

import (
	"fmt"
	"strings"

	"github.com/nektos/act/pkg/schema"
	yaml3 "gopkg.in/yaml.v3"
	"sigs.k8s.io/yaml"
)

// compositeAction is a composite action of GitHub Actions.
type compositeAction struct {
	Inputs map[string]actionInput `json:"inputs"`
	Runs   struct {
		Using string       `json:"using"`
		Steps []actionStep `json:"steps"`
	} `json:"runs"`
}

type actionInput struct {
	Description string `json:"description"`
	Default     string `json:"default"`
	Required    bool   `json:"required"`
}

type actionStep struct {
	If    string            `json:"if"`
	Run   string            `json:"run"`
	Shell string            `json:"shell"`
	Dir   string            `json:"working-directory"`
	Env   map[string]string `json:"env"`
}

// action checks a composite action by the schema of GitHub's runner, and that it consists of
// scripts without expressions.
func action(_ string, data []byte) (any, []error) {
	var document yaml3.Node
	if err := yaml3.Unmarshal(data, &document); err != nil {
		return nil, []error{err}
	}
	validator := schema.Node{Definition: "action-root", Schema: schema.GetActionSchema()}
	if err := validator.UnmarshalYAML(&document); err != nil {
		return nil, []error{err}
	}
	var a compositeAction
	if err := yaml.Unmarshal(data, &a); err != nil {
		return nil, []error{err}
	}
	var errs []error
	if a.Runs.Using != "composite" {
		errs = append(errs, fmt.Errorf("it is no composite action, but %q", a.Runs.Using))
	}
	for i, step := range a.Runs.Steps {
		if step.Run == "" || step.Shell != "bash" {
			errs = append(errs, fmt.Errorf("step %d is no script for bash", i+1))
		}
		if strings.Contains(step.Run, "${{") {
			errs = append(errs, fmt.Errorf("step %d: an expression in a script is code of whoever sets it; use env", i+1))
		}
	}
	return a, errs
}
