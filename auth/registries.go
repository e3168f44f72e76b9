package auth

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/ocibridge/ocibridge/ociaddr"
)

var amazonECR = regexp.MustCompile(`^\d+\.dkr\.ecr(-fips)?\.([a-z0-9-]+)\.amazonaws\.com(\.cn)?$`)

// howToCreate says how to create the repository, or the project that contains the
// repository. Some registries require that before the first push.
func howToCreate(r ociaddr.Repository) string {
	first, host := project(r), string(r.Registry)
	if m := amazonECR.FindStringSubmatch(host); m != nil {
		return fmt.Sprintf("create the repository first: aws ecr create-repository --region %s --repository-name %s", m[2], r.Name)
	}
	if host == "public.ecr.aws" {
		return fmt.Sprintf("create the repository first: aws ecr-public create-repository --region us-east-1 --repository-name %s", strings.TrimPrefix(r.Name, first+"/"))
	}
	if location, ok := strings.CutSuffix(host, "-docker.pkg.dev"); ok {
		if parts := strings.Split(r.Name, "/"); len(parts) > 2 {
			return fmt.Sprintf("create the repository first: gcloud artifacts repositories create %s --repository-format=docker --location=%s --project=%s",
				parts[1], location, parts[0])
		}
		return "a repository there is " + host + "/PROJECT/REPOSITORY/...: put both before the provider in the template"
	}
	return fmt.Sprintf("on many registries the first part of the name must exist: create %q on %s, such as a Harbor project or an Artifactory repository of type Docker, or correct the template", first, host)
}

// rightsNote names the permissions that a login for the repository's registry most often
// lacks. It returns "" for unknown registries.
func rightsNote(r ociaddr.Repository) string {
	switch host := string(r.Registry); {
	case r.Registry.Canonical() == ociaddr.DockerHub && strings.Count(r.Name, "/") > 1:
		return "; names on Docker Hub have two parts: use a template such as docker.io/acme/${namespace}-${type}"
	case host == "ghcr.io":
		return "; GHCR wants a token (classic) with read:packages, and write:packages to push, or a workflow's token with the permission packages: write"
	case strings.Contains(host, "gitlab"):
		return "; GitLab wants a token with read_registry, and write_registry to push, and a project whose path the name begins with"
	case amazonECR.MatchString(host):
		return "; Amazon ECR wants ecr:BatchGetImage and ecr:GetDownloadUrlForLayer, and to push ecr:InitiateLayerUpload, ecr:UploadLayerPart, ecr:CompleteLayerUpload and ecr:PutImage"
	case strings.HasSuffix(host, ".azurecr.io"):
		return "; Azure wants the role AcrPull, and AcrPush to push, or a token whose scope map has the repository"
	case strings.HasSuffix(host, "-docker.pkg.dev"):
		return "; Google wants the role roles/artifactregistry.reader, and roles/artifactregistry.writer to push"
	}
	return ""
}

// harborRight returns the hint for the login used, which lacks a right. The hint names the
// permission and the role in Harbor that give the right.
func harborRight(used string, r ociaddr.Repository, right string) string {
	permission, role := "Pull", "Guest"
	switch right {
	case "push":
		permission, role = "Push", "Developer"
	case "delete":
		permission, role = "Delete", "Maintainer"
	}
	return fmt.Sprintf("%s was accepted, but lacks the right to %s in the project %q: in Harbor, a robot needs the permission Repository: %s, and a user the role %s or a higher one",
		used, right, project(r), permission, role)
}

// project returns the first part of a repository's name. In Harbor, it is the name of
// the project.
func project(r ociaddr.Repository) string {
	first, _, _ := strings.Cut(r.Name, "/")
	return first
}
