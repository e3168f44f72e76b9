package quirks

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
)

// Paging describes how a registry lists tags.
type Paging struct {
	// PageSize is the number of tags on a page if the client sends no n; 0 lists all tags on one page.
	PageSize int
	// MaxN is the largest n that the registry accepts; 0 means no limit. If Capped is true, a larger n counts
	// as MaxN. Otherwise, a larger n is an error.
	MaxN   int
	Capped bool
	// Link is the form of the link to the next page; "" is [LinkRelative].
	Link LinkForm
	// Opaque puts a token into the link to the next page. Only a request with this token gets the next page.
	// The name of the last tag has no effect.
	Opaque bool
	// Unordered lists names in reverse order.
	Unordered bool
	// PlainText sends lists with the content type text/plain.
	PlainText bool
	// UnknownIsEmpty makes the registry return an empty list for an absent repository, instead of 404.
	UnknownIsEmpty bool
}

// LinkForm is the form of a link to the next page.
type LinkForm string

const (
	LinkRelative LinkForm = "relative"
	LinkAbsolute LinkForm = "absolute"
	// LinkOtherHost and LinkOtherPath are wrong links. A client that follows them does not get the next page.
	LinkOtherHost LinkForm = "other host"
	LinkOtherPath LinkForm = "other path"
)

// tags lists tags page by page.
func (q *Registry) tags(w http.ResponseWriter, r request) bool {
	if r.kind != "tags" || r.Method != http.MethodGet {
		return false
	}
	all, ok := q.tagsOf(r)
	if !ok && r.s.Projects && !r.s.UnknownIsEmpty {
		refuse(w, http.StatusNotFound, "NOT_FOUND", fmt.Sprintf("repository %s not found", r.name))
		return true
	}
	if !ok && !r.s.UnknownIsEmpty {
		refuse(w, http.StatusNotFound, "NAME_UNKNOWN", "repository name not known to registry")
		return true
	}
	if r.s.Unordered {
		slices.Reverse(all)
	}
	size, err := r.pageSize()
	if err != nil {
		refuse(w, http.StatusBadRequest, "PAGINATION_NUMBER_INVALID", err.Error())
		return true
	}
	rest := all[r.start(all):]
	shown := rest
	if size > 0 && len(rest) > size {
		shown = rest[:size]
		w.Header().Set("Link", "<"+r.link(size, shown[size-1])+`>; rel="next"`)
	}
	w.Header().Set("Content-Type", "application/json")
	if r.s.PlainText {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	}
	json.NewEncoder(w).Encode(map[string]any{"name": r.name, "tags": shown})
	return true
}

// pageSize returns how many tags to list; 0 means all.
func (r request) pageSize() (int, error) {
	text := r.URL.Query().Get("n")
	if text == "" {
		return r.s.PageSize, nil
	}
	n, err := strconv.Atoi(text)
	switch {
	case err != nil || n < 1:
		return 0, fmt.Errorf("n is %q", text)
	case r.s.MaxN > 0 && n > r.s.MaxN && !r.s.Capped:
		return 0, fmt.Errorf("n is %d, more than %d", n, r.s.MaxN)
	case r.s.MaxN > 0:
		return min(n, r.s.MaxN), nil
	}
	return n, nil
}

// start returns the index of the first tag on the requested page.
func (r request) start(all []string) int {
	last := r.URL.Query().Get("last")
	if r.s.Opaque {
		token, _ := base64.RawURLEncoding.DecodeString(r.URL.Query().Get("next_page"))
		last = string(token)
	}
	return slices.Index(all, last) + 1 // after an unknown tag, the list starts at the beginning
}

func (r request) link(size int, last string) string {
	query := url.Values{"n": {strconv.Itoa(size)}, "last": {last}}
	if r.s.Opaque {
		query = url.Values{"next_page": {base64.RawURLEncoding.EncodeToString([]byte(last))}}
	}
	rest := r.URL.Path + "?" + query.Encode()
	switch r.s.Link {
	case LinkAbsolute:
		return "https://" + r.Host + rest
	case LinkOtherHost:
		return "https://internal.example:8081" + rest
	case LinkOtherPath:
		return "/artifactory/api/docker" + rest
	}
	return rest
}
