package main

import (
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// writes are the write permissions that a workflow is allowed to have. It is allowed to
// have them only in a separate job.
var writes = []string{"contents", "packages", "id-token", "attestations"}

// workflow checks that the actions of a GitHub Actions workflow are pinned, and that the
// workflow has few permissions. actionlint checks the syntax.
func workflow(_ string, data []byte) (any, []error) {
	type permissions map[string]string
	var w struct {
		Permissions *permissions `json:"permissions"`
		Jobs        map[string]struct {
			Permissions permissions `json:"permissions"`
			Timeout     int         `json:"timeout-minutes"`
			Steps       []struct {
				Run  string         `json:"run"`
				Uses string         `json:"uses"`
				With map[string]any `json:"with"`
			} `json:"steps"`
		} `json:"jobs"`
	}
	if err := yaml.Unmarshal(data, &w); err != nil {
		return nil, []error{err}
	}
	var errs []error
	if w.Permissions == nil {
		errs = append(errs, fmt.Errorf("without a permissions block, the job may do everything"))
	} else {
		for scope, may := range *w.Permissions {
			if may != "read" && may != "none" {
				errs = append(errs, fmt.Errorf("all its jobs have %s: %s", scope, may))
			}
		}
	}
	count := 0
	for name, job := range w.Jobs {
		for scope, may := range job.Permissions {
			if may == "write" && !slices.Contains(writes, scope) {
				errs = append(errs, fmt.Errorf("job %s has %s: write", name, scope))
			}
		}
		if job.Timeout == 0 {
			errs = append(errs, fmt.Errorf("job %s has no timeout-minutes", name))
		}
		for _, step := range job.Steps {
			if step.Uses != "" {
				count++
			}
			if strings.Contains(step.Run, "${{") {
				errs = append(errs, fmt.Errorf("job %s: an expression in a script is code of whoever sets it; use env", name))
			}
			if strings.HasPrefix(step.Uses, "actions/checkout@") && step.With["persist-credentials"] != false {
				errs = append(errs, fmt.Errorf("job %s: checkout leaves its token behind", name))
			}
		}
	}
	lines := 0
	for line := range strings.Lines(string(data)) {
		if uses.MatchString(line) {
			lines++
		}
		if err := pinnedAction(line); err != nil {
			errs = append(errs, err)
		}
	}
	if lines != count {
		errs = append(errs, fmt.Errorf("%d steps use actions, and %d lines look like it", count, lines))
	}
	return nil, errs
}
