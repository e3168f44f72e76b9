package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
)

// composeFile loads a compose file as docker compose does. It validates the schema, and
// checks that the files that the compose file names exist.
func composeFile(name string, data []byte) (any, []error) {
	folder, err := filepath.Abs(filepath.Dir(name))
	if err != nil {
		return nil, []error{err}
	}
	project, err := loader.LoadWithContext(context.Background(), types.ConfigDetails{
		WorkingDir:  folder,
		ConfigFiles: []types.ConfigFile{{Filename: name, Content: data}},
		Environment: types.Mapping{},
	}, func(o *loader.Options) {
		o.SetProjectName("check", true)
		o.ResolvePaths = true
	})
	if err != nil {
		return nil, []error{err}
	}
	var errs []error
	for _, s := range project.Services {
		for _, problem := range service(s) {
			errs = append(errs, fmt.Errorf("service %s: %s", s.Name, problem))
		}
	}
	return project, errs
}

// service returns the privileges that a service has but should not have.
func service(s types.ServiceConfig) (problems []string) {
	no := func(ok bool, problem string) {
		if !ok {
			problems = append(problems, problem)
		}
	}
	no(s.ReadOnly, "the root file system is writable")
	no(slices.Equal(s.CapDrop, []string{"ALL"}) && len(s.CapAdd) == 0 && !s.Privileged, "it has capabilities")
	no(slices.Contains(s.SecurityOpt, "no-new-privileges:true"), "privileges may grow")
	no(s.User != "" && s.User != "root" && s.User[0] != '0', "it may run as root")
	no(s.NetworkMode == "", "it has the network of "+s.NetworkMode)
	no(s.MemLimit > 0 || (s.Deploy != nil && s.Deploy.Resources.Limits != nil && s.Deploy.Resources.Limits.MemoryBytes > 0), "its memory has no limit")
	for _, p := range s.Ports {
		no(p.HostIP == "127.0.0.1", "port "+p.Published+" is open to the network")
	}
	if s.Build == nil {
		if err := pinned(s.Image); err != nil {
			problems = append(problems, err.Error())
		}
	}
	return problems
}
