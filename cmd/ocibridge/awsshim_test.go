package main

import (
	"net/http"
	"strings"

	"github.com/ocibridge/ocibridge/internal/test/testkit/quirks"
)

// awsShim does what the AWS CLI does for the subcommands of docs/howto/ecr.md: it changes the test's registry, or
// prints its password. It accepts only flags that the AWS CLI has.
const awsShim = `#!/bin/sh
set -eu
command="$1 $2"
shift 2
query="command=${command#ecr }"
while [ $# -gt 0 ]; do
  case $1 in
  --region|--repository-name|--image-tag-mutability|--image-tag-mutability-exclusion-filters) query="$query&${1#--}=$2"; shift 2 ;;
  *) echo "aws: unknown option $1" >&2; exit 252 ;;
  esac
done
case $command in
"ecr get-login-password") echo "$AWS_SHIM_PASSWORD" ;;
"ecr create-repository"|"ecr put-image-tag-mutability") curl -fsS "$AWS_SHIM?$query" ;;
*) echo "aws: unknown command $command" >&2; exit 252 ;;
esac
`

// helperShim does what Amazon's credential helper does: it answers get with a password, and stores nothing.
const helperShim = `#!/bin/sh
[ "$1" = get ] && printf '{"Username": "AWS", "Secret": "%s"}' "$AWS_SHIM_PASSWORD"
`

// aws answers the requests of awsShim.
func (s *site) aws(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	switch q.Get("command") {
	case "create-repository":
		s.registry.Create(q.Get("repository-name"))
	case "put-image-tag-mutability":
		_, filter, _ := strings.Cut(q.Get("image-tag-mutability-exclusion-filters"), ",filter=")
		prefix, found := strings.CutSuffix(filter, "*")
		if !found || q.Get("image-tag-mutability") != "IMMUTABLE_WITH_EXCLUSION" {
			http.Error(w, r.URL.RawQuery, http.StatusBadRequest)
			return
		}
		s.registry.Set(func(s *quirks.Settings) {
			s.Immutable, s.ImmutableCode = http.StatusBadRequest, "TAG_INVALID"
			s.Mutable = func(tag string) bool { return strings.HasPrefix(tag, prefix) }
		})
	}
}
