package auth

import (
	"fmt"
	"strings"

	"github.com/ocibridge/ocibridge/ociaddr"
)

// harborRight returns the hint for a login that lacks a right. The hint names the
// permission and the role in Harbor that give the right.
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
