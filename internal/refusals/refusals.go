// Package refusals recognises why a registry refused a request. Registries use different statuses, codes and
// messages for the same reason.
package refusals

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"regexp"
	"slices"

	"oras.land/oras-go/v2/registry/remote/errcode"
)

// maxBody is the maximum number of bytes of a refusal that are read.
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

// Full reports whether a registry refuses more content because a quota is reached. Harbor 2.15 answers 403;
// other versions and registries answer 412 and other statuses. A 507 has no other meaning (RFC 4918, section
// 11.5), so it needs no message. A 429 is about a quota of requests, not of content.
func Full(err error) bool {
	var answer *errcode.ErrorResponse
	return errors.As(err, &answer) && answer.StatusCode == http.StatusInsufficientStorage || says(err, full, http.StatusTooManyRequests)
}

var full = regexp.MustCompile(`(?i)\bquota\b|exceed the configured upper limit|storage limit|insufficient storage`)

// NoProject reports whether the project of a repository does not exist. Harbor 2.15 then answers 401, even to
// administrators; others answer 404.
func NoProject(err error) bool { return says(err, noProject, 0) }

var noProject = regexp.MustCompile(`(?i)\bproject \S+ not found`)

// NameWithoutProject reports whether Harbor refuses a repository's name because it has only one part. Harbor's
// names begin with the project.
func NameWithoutProject(err error) bool { return says(err, nameWithoutProject, 0) }

var nameWithoutProject = regexp.MustCompile(`(?i)invalid repository name: [^/\s]+$`)

// MissingRight returns the right that a Harbor login lacks (pull, push or delete), or "" for any other error.
// Harbor answers a wrong password with the same words.
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

// ProxyCache reports whether Harbor refuses a push because the project only caches
// another registry.
func ProxyCache(err error) bool { return says(err, proxyCache, 0) }

var proxyCache = regexp.MustCompile(`(?i)push artifact to a proxy project`)

// ReadOnly reports whether Harbor refuses a change because it is in read-only mode.
func ReadOnly(err error) bool { return says(err, readOnly, 0) }

var readOnly = regexp.MustCompile(`(?i)\bread[- ]only mode\b`)

// Policy reports whether a policy of the project forbids reading an artifact, such as
// Harbor's policies about signatures and vulnerabilities.
func Policy(err error) bool {
	var answer *errcode.ErrorResponse
	return errors.As(err, &answer) && slices.ContainsFunc(answer.Errors, func(e errcode.Error) bool { return e.Code == "PROJECTPOLICYVIOLATION" })
}

// UnknownBlob reports whether a registry refuses a manifest because it lacks a blob or manifest that the
// manifest names.
func UnknownBlob(err error) bool {
	var answer *errcode.ErrorResponse
	return errors.As(err, &answer) && slices.ContainsFunc(answer.Errors, func(e errcode.Error) bool { return e.Code == errcode.ErrorCodeManifestBlobUnknown })
}

// Immutable reports whether Harbor refuses a change because a rule makes the tag immutable.
func Immutable(err error) bool { return says(err, immutable, 0) }

var immutable = regexp.MustCompile(`(?i)configured as immutable`)

// says reports whether the message of a registry's answer matches words. It returns false for an answer with
// the status but; 0 excludes no status.
func says(err error, words *regexp.Regexp, but int) bool {
	var answer *errcode.ErrorResponse
	return errors.As(err, &answer) && answer.StatusCode != but && len(answer.Errors) > 0 && words.MatchString(answer.Errors.Error())
}
