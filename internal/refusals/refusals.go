// Package refusals knows what registries mean by refusals whose status and code are not
// enough, because registries differ in both.
package refusals

import (
	"errors"
	"net/http"
	"regexp"

	"oras.land/oras-go/v2/registry/remote/errcode"
)

// Full reports whether a registry refuses more content because a quota is reached.
// Harbor answers 403, or 412 in older versions, GitLab and Quay 403, and others 413 or
// 507. A quota of requests is answered 429, and is none of content.
func Full(err error) bool {
	return says(err, full, http.StatusTooManyRequests)
}

var full = regexp.MustCompile(`(?i)\bquota\b|exceed the configured upper limit|storage limit|insufficient storage`)

// NoProject reports whether a registry lacks the project that a repository is in. Harbor
// answers 401, or 404 in older versions.
func NoProject(err error) bool { return says(err, noProject, 0) }

var noProject = regexp.MustCompile(`(?i)\bproject \S+ not found`)

// says reports whether words are in a registry's answer of any status but one.
func says(err error, words *regexp.Regexp, but int) bool {
	var answer *errcode.ErrorResponse
	return errors.As(err, &answer) && answer.StatusCode != but && len(answer.Errors) > 0 && words.MatchString(answer.Errors.Error())
}
