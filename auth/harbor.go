package auth

import (
	"fmt"
	"strings"

	"github.com/ocibridge/ocibridge/internal/refusals"
	"github.com/ocibridge/ocibridge/ociaddr"
)

// explainHarbor recognises Harbor's refusals that are not about credentials.
func explainHarbor(err error, r ociaddr.Repository) string {
	switch {
	case refusals.NoProject(err):
		return fmt.Sprintf("create the project %q on %s, or correct the template, whose first part after the host names a project: a new login does not help", project(r), r.Registry)
	case refusals.NameWithoutProject(err):
		return fmt.Sprintf("in Harbor a repository name begins with its project: correct the template, such as %s/PROJECT/${namespace}/${type}", r.Registry)
	case refusals.ProxyCache(err):
		return fmt.Sprintf("the project %q on %s is a proxy cache, which takes no pushes: name another project in the template, or push to the registry that it caches", project(r), r.Registry)
	case refusals.ReadOnly(err):
		return fmt.Sprintf("%s is in read-only mode, and takes no changes from any login: run it again when its administrator has ended that", r.Registry)
	case refusals.Policy(err):
		return fmt.Sprintf("a policy of the project %q forbids everybody to read this artifact: switch the policy off (in Harbor: the project's Configuration, Deployment security), or meet it, such as by cosign sign --recursive", project(r))
	case refusals.Immutable(err):
		return fmt.Sprintf("a rule of %s makes this tag immutable: change the rule (in Harbor: the project's Policy, Tag Immutability), or leave the version as it is", r.Registry)
	}
	return ""
}

// harborRight names the permission that a login lacks, in Harbor's terms.
func harborRight(login *login, r ociaddr.Repository, right string) string {
	permission, role := "Pull", "Guest"
	switch right {
	case "push":
		permission, role = "Push", "Developer"
	case "delete":
		permission, role = "Delete", "Maintainer"
	}
	return fmt.Sprintf("%s was accepted, but lacks the right to %s in the project %q: in Harbor, a robot needs the permission Repository: %s, and a user the role %s or a higher one",
		login, right, project(r), permission, role)
}

// project returns the first part of a repository's name. In Harbor, it is the name of
// the project.
func project(r ociaddr.Repository) string {
	first, _, _ := strings.Cut(r.Name, "/")
	return first
}
