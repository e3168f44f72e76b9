package artifact

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"

	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/ocibridge/ocibridge/ociaddr"
)

// TagLister lists the tags of a repository page by page, from after last.
// oras-go's remote.Repository is one.
type TagLister interface {
	Tags(ctx context.Context, last string, fn func(tags []string) error) error
}

// ErrTagsBrokeOff: a list of tags began, and then a page of it could not be had.
// Whatever the cause says of itself, it is trouble and no absence.
var ErrTagsBrokeOff = errors.New("the list of tags breaks off")

// MaxTagPages bounds how many pages of tags are read: a registry whose pages link
// to each other would send them for ever.
const MaxTagPages = 1000

// MaxTags bounds how many tags of a repository are read.
const MaxTags = 250_000

// maxName bounds the names that are remembered of a list, in bytes. No tag is longer.
const maxName = 128

// Neither is a reason to ask in another way.
var (
	errTooManyTags  = fmt.Errorf("more than %d tags: %w", MaxTags, errdef.ErrTooManyPages)
	errTooManyPages = fmt.Errorf("more than %d pages of tags: %w", MaxTagPages, errdef.ErrTooManyPages)
)

// ListTags returns all tags of a repository, in the registry's order. What is no
// tag is left out.
//
// Some registries link to a next page that is not there, or at another host
// (Artifactory behind a proxy, with the repository in the path). The list then
// goes on with what comes after the last tag of the page before, by the registry's
// own rules; where that does not work either, the error wraps ErrTagsBrokeOff and
// the cause. An error for the first page is returned as it is.
func ListTags(ctx context.Context, store TagLister) ([]ociaddr.Tag, error) {
	l := &tagList{seen: map[string]bool{}}
	for {
		before, last := l.pages, l.last
		err := store.Tags(ctx, last, l.page)
		switch {
		case err == nil:
			return l.tags, nil
		case l.pages == 0:
			return nil, err
		case l.pages > before && l.last != last && asksForMore(ctx, err):
			l.cause = err
			continue
		case l.cause != nil && !errors.Is(err, errdef.ErrTooManyPages):
			err = l.cause // of the link, which is what somebody can repair
		}
		return nil, fmt.Errorf("%w after %d pages: %w", ErrTagsBrokeOff, l.pages, err)
	}
}

// tagList is a list as far as it has come.
type tagList struct {
	tags  []ociaddr.Tag
	seen  map[string]bool
	last  string // of the latest page that had any
	pages int
	read  int
	cause error // for which the latest request began after last
}

// page takes one page. It refuses one that begins again.
func (l *tagList) page(page []string) error {
	if l.cause != nil && slices.ContainsFunc(page, func(t string) bool { return l.seen[t] }) {
		return l.cause // the registry passes over where it was told to begin
	}
	if l.pages++; l.pages > MaxTagPages {
		return errTooManyPages
	}
	if l.read += len(page); l.read > MaxTags {
		return errTooManyTags
	}
	for _, t := range page {
		if len(t) <= maxName {
			l.seen[t] = true
		}
		if tag, err := ociaddr.ParseTag(t); err == nil {
			l.tags = append(l.tags, tag)
		}
		l.last = t
	}
	return nil
}

// asksForMore reports whether a page was missing for a reason that may lie in the
// link to it.
func asksForMore(ctx context.Context, err error) bool {
	var answer *errcode.ErrorResponse
	var connection *net.OpError
	switch {
	case ctx.Err() != nil, errors.Is(err, errdef.ErrTooManyPages), errors.As(err, &connection), errors.Is(err, os.ErrDeadlineExceeded):
		return false
	case errors.As(err, &answer):
		return answer.StatusCode < 500 && answer.StatusCode != http.StatusTooManyRequests
	}
	return true
}
