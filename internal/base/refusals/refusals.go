// Package refusals recognises the reason for which a registry refused a request. For the same reason,
// different registries send different statuses, codes and messages.
package refusals

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"oras.land/oras-go/v2/registry/remote/errcode"
)

// maxBody is the maximum number of bytes that are read of the body of a response.
const maxBody = 8 << 10

// Read returns a registry's refusal as an error with the registry's own message. It reads the body of the
// response, but does not close it. The message is missing if the body is longer than 8 KiB or not JSON.
func Read(resp *http.Response) *errcode.ErrorResponse {
	out := &errcode.ErrorResponse{Method: resp.Request.Method, URL: resp.Request.URL, StatusCode: resp.StatusCode}
	var body struct {
		Errors errcode.Errors `json:"errors"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxBody)).Decode(&body); err == nil {
		out.Errors = body.Errors
	}
	return out
}

// Full reports whether a registry refuses more content because a quota is reached. The status is 403 in Harbor
// 2.15, and 412 or another status in other versions and registries. Status 507 has no other meaning (RFC 4918,
// section 11.5), so the message does not matter. Status 429 means a quota of requests, and never a quota of
// content.
func Full(err error) bool {
	var answer *errcode.ErrorResponse
	return errors.As(err, &answer) && answer.StatusCode == http.StatusInsufficientStorage || says(err, full, http.StatusTooManyRequests)
}

var full = regexp.MustCompile(`(?i)\bquota\b|exceed the configured upper limit|storage limit|insufficient storage`)

// NoProject reports whether a registry refuses a request because the project of the repository does not exist.
// The status is 401 in Harbor 2.15, even for administrators, and 404 in other versions.
func NoProject(err error) bool { return says(err, noProject, 0) }

var noProject = regexp.MustCompile(`(?i)\bproject \S+ not found`)

// NameWithoutProject reports whether Harbor refuses the name of a repository because the name has only one
// part. In Harbor, the first part of a name is the project.
func NameWithoutProject(err error) bool { return says(err, nameWithoutProject, 0) }

var nameWithoutProject = regexp.MustCompile(`(?i)invalid repository name: [^/\s]+$`)

// MissingRight returns the right that a Harbor login lacks (pull, push or delete), or "" for any other error.
// Harbor sends the same message for a wrong password.
func MissingRight(err error) string {
	var answer *errcode.ErrorResponse
	if !errors.As(err, &answer) {
		return ""
	}
	for _, e := range answer.Errors {
		if m := missingRight.FindStringSubmatch(e.Message); m != nil {
			return m[1]
		}
	}
	return ""
}

var missingRight = regexp.MustCompile(`^unauthorized to access repository: \S+, action: (pull|push|delete)\b`)

// MaybeAbsent reports whether a registry, or its token server, refuses to read a repository with status 403. Some
// registries, such as GHCR, send this status also if the repository does not exist. The refusal of a blob does not
// count: a blob is read only after its manifest.
func MaybeAbsent(err error) bool {
	var answer *errcode.ErrorResponse
	switch {
	case !errors.As(err, &answer), answer.StatusCode != http.StatusForbidden, answer.Method != http.MethodGet && answer.Method != http.MethodHead:
		return false
	case answer.URL == nil:
		return true
	}
	// A token server gets a GET request also for a push.
	writes := func(scope string) bool { return scope[strings.LastIndexByte(scope, ':')+1:] != "pull" }
	return !strings.Contains(answer.URL.Path, "/blobs/") && !slices.ContainsFunc(answer.URL.Query()["scope"], writes)
}

// ProxyCache reports whether Harbor refuses a push because the project is a proxy cache of another registry.
func ProxyCache(err error) bool { return says(err, proxyCache, 0) }

var proxyCache = regexp.MustCompile(`(?i)push artifact to a proxy project`)

// ReadOnly reports whether Harbor refuses a change because it is in read-only mode.
func ReadOnly(err error) bool { return says(err, readOnly, 0) }

var readOnly = regexp.MustCompile(`(?i)\bread[- ]only mode\b`)

// Policy reports whether a registry refuses to send an artifact because of a policy of the project. Harbor has
// such policies about signatures and vulnerabilities.
func Policy(err error) bool {
	var answer *errcode.ErrorResponse
	return errors.As(err, &answer) && slices.ContainsFunc(answer.Errors, func(e errcode.Error) bool { return e.Code == "PROJECTPOLICYVIOLATION" })
}

// UnknownBlob reports whether a registry refuses a manifest because the manifest names a blob or manifest that
// the registry does not have.
func UnknownBlob(err error) bool {
	var answer *errcode.ErrorResponse
	return errors.As(err, &answer) && slices.ContainsFunc(answer.Errors, func(e errcode.Error) bool { return e.Code == errcode.ErrorCodeManifestBlobUnknown })
}

// Immutable reports whether Harbor refuses a change because a rule makes the tag immutable.
func Immutable(err error) bool { return says(err, immutable, 0) }

var immutable = regexp.MustCompile(`(?i)configured as immutable`)

// says reports whether err is a registry's response with a message that matches words. It returns false if the
// status of the response equals the parameter but. If that is 0, every status is accepted.
func says(err error, words *regexp.Regexp, but int) bool {
	var answer *errcode.ErrorResponse
	return errors.As(err, &answer) && answer.StatusCode != but && len(answer.Errors) > 0 && words.MatchString(answer.Errors.Error())
}
