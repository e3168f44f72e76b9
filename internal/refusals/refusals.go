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
// Harbor 2.15 answers 403; other versions and registries answer 412 and more. A 507 means
// nothing else (RFC 4918, section 11.5), and needs no words. A 429 is about a quota of
// requests, not of content.
func Full(err error) bool {
	var answer *errcode.ErrorResponse
	return errors.As(err, &answer) && answer.StatusCode == http.StatusInsufficientStorage || says(err, full, http.StatusTooManyRequests)
}

var full = regexp.MustCompile(`(?i)\bquota\b|exceed the configured upper limit|storage limit|insufficient storage`)

// NoProject reports whether a registry lacks the project that a repository is in. Harbor
// 2.15 answers 401 then, even to administrators; others answer 404.
func NoProject(err error) bool { return says(err, noProject, 0) }

var noProject = regexp.MustCompile(`(?i)\bproject \S+ not found`)

// says reports whether words are in a registry's answer of any status but one.
func says(err error, words *regexp.Regexp, but int) bool {
	var answer *errcode.ErrorResponse
	return errors.As(err, &answer) && answer.StatusCode != but && len(answer.Errors) > 0 && words.MatchString(answer.Errors.Error())
}
