// Package refusals recognises the reason for which a registry refused a request. For the same reason, different registries
// send different statuses, codes and messages.
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

// The messages of registries, most of them Harbor's.
var (
	full               = regexp.MustCompile(`(?i)\bquota\b|exceed the configured upper limit|storage limit|insufficient storage`)
	noProject          = regexp.MustCompile(`(?i)\bproject \S+ not found`)
	nameWithoutProject = regexp.MustCompile(`(?i)invalid repository name: [^/\s]+$`)
	missingRight       = regexp.MustCompile(`^unauthorized to access repository: \S+, action: (pull|push|delete)\b`)
	proxyCache         = regexp.MustCompile(`(?i)push artifact to a proxy project`)
	readOnly           = regexp.MustCompile(`(?i)\bread[- ]only mode\b`)
	immutable          = regexp.MustCompile(`(?i)configured as immutable`)
)

// Read returns a registry's refusal as an error with the registry's own message. It reads the body of the response, but
// does not close it. The message is missing if the body is longer than 8 KiB or not JSON.
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

// Status returns the HTTP status of the registry's response that err wraps, or 0.
func Status(err error) int {
	answer, ok := errors.AsType[*errcode.ErrorResponse](err)
	if !ok {
		return 0
	}
	return answer.StatusCode
}

// Content reports whether the HTTP status in err means that the registry refuses the content.
func Content(err error) bool {
	return slices.Contains([]int{
		http.StatusBadRequest, http.StatusForbidden, http.StatusMethodNotAllowed, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity,
	}, Status(err))
}

// Full reports whether a registry refuses more content because a quota is reached. The status is 403 in Harbor 2.15, and 412
// or another status in other versions and registries. Status 507 has no other meaning (RFC 4918, section 11.5), so the
// message does not matter. Status 429 means a quota of requests, and never a quota of content.
func Full(err error) bool {
	answer, ok := errors.AsType[*errcode.ErrorResponse](err)
	return ok && answer.StatusCode == http.StatusInsufficientStorage || says(err, full, http.StatusTooManyRequests)
}

// NoProject reports whether a registry refuses a request because the project of the repository does not exist. The status
// is 401 in Harbor 2.15, even for administrators, and 404 in other versions.
func NoProject(err error) bool { return says(err, noProject, 0) }

// NameWithoutProject reports whether Harbor refuses the name of a repository because the name has only one part. In Harbor,
// the first part of a name is the project.
func NameWithoutProject(err error) bool { return says(err, nameWithoutProject, 0) }

// MissingRight returns the right that a Harbor login lacks (pull, push or delete), or "" for any other error. Harbor sends
// the same message for a wrong password.
func MissingRight(err error) string {
	if answer, ok := errors.AsType[*errcode.ErrorResponse](err); ok {
		for _, e := range answer.Errors {
			if m := missingRight.FindStringSubmatch(e.Message); m != nil {
				return m[1]
			}
		}
	}
	return ""
}

// MaybeAbsent reports whether a registry, or its token server, refuses to read a repository with status 403. Some
// registries, such as GHCR, send this status also if the repository does not exist. The refusal of a blob does not count: a
// blob is read only after its manifest.
func MaybeAbsent(err error) bool {
	answer, ok := errors.AsType[*errcode.ErrorResponse](err)
	switch {
	case !ok, answer.StatusCode != http.StatusForbidden, answer.Method != http.MethodGet && answer.Method != http.MethodHead:
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

// ReadOnly reports whether Harbor refuses a change because it is in read-only mode.
func ReadOnly(err error) bool { return says(err, readOnly, 0) }

// Policy reports whether a registry refuses to send an artifact because of a policy of the project. Harbor has such
// policies about signatures and vulnerabilities. The response to a HEAD request has only the status.
func Policy(err error) bool {
	answer, ok := errors.AsType[*errcode.ErrorResponse](err)
	return ok && answer.Method == http.MethodHead && answer.StatusCode == http.StatusPreconditionFailed || hasCode(err, "PROJECTPOLICYVIOLATION")
}

// UnknownBlob reports whether a registry refuses a manifest because the manifest names a blob or manifest that the registry
// does not have.
func UnknownBlob(err error) bool { return hasCode(err, errcode.ErrorCodeManifestBlobUnknown) }

func hasCode(err error, code string) bool {
	answer, ok := errors.AsType[*errcode.ErrorResponse](err)
	return ok && slices.ContainsFunc(answer.Errors, func(e errcode.Error) bool { return e.Code == code })
}

// Immutable reports whether Harbor refuses a change because a rule makes the tag immutable.
func Immutable(err error) bool { return says(err, immutable, 0) }

// says reports whether err is a registry's response with a message that matches words. It returns false if the status of
// the response equals the parameter but.
func says(err error, words *regexp.Regexp, but int) bool {
	answer, ok := errors.AsType[*errcode.ErrorResponse](err)
	return ok && answer.StatusCode != but && len(answer.Errors) > 0 && words.MatchString(answer.Errors.Error())
}
