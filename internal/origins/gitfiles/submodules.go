package gitfiles

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"path"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/config"

	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// submodule is a submodule that clients fetch.
type submodule struct {
	path   string
	url    string
	commit plumbing.Hash
}

// submodules returns the submodules that "git submodule update --init" fetches. gitlinks are the commits in the tree, by
// path, and text is the file .gitmodules.
func submodules(gitlinks []entry, text []byte) ([]submodule, error) {
	if len(gitlinks) == 0 {
		return nil, nil
	}
	parsed := config.New()
	if err := config.NewDecoder(bytes.NewReader(text)).Decode(parsed); err != nil {
		return nil, refuseFile("its file .gitmodules cannot be read: %.200s", hint.OneLine(err.Error()))
	}
	byPath := map[string]*config.Subsection{}
	for _, s := range parsed.Section("submodule").Subsections {
		at := s.Option("path")
		for _, key := range []string{"path", "url", "update"} {
			if len(s.OptionAll(key)) > 1 {
				return nil, refuseFile("its file .gitmodules has two settings %q of the submodule %q", key, s.Name)
			}
		}
		if byPath[at] != nil && at != "" {
			return nil, refuseFile("its file .gitmodules has two submodules at %q", at)
		}
		byPath[at] = s
	}
	var out []submodule
	for _, link := range gitlinks {
		s := byPath[link.name]
		if s == nil || !isSubmoduleName(s.Name) || s.Option("url") == "" || strings.HasPrefix(s.Option("url"), "-") {
			return nil, refuseFile("the submodule %s has no URL in the file .gitmodules, and clients fail", link.name)
		}
		switch update := s.Option("update"); update {
		case "none":
			continue
		case "", "checkout", "rebase", "merge":
		default:
			return nil, refuseFile("the submodule %s has the setting update=%.40q, and clients fail", link.name, update)
		}
		out = append(out, submodule{link.name, s.Option("url"), link.id})
	}
	return out, nil
}

// isSubmoduleName reports whether Git accepts the name of a submodule.
func isSubmoduleName(name string) bool {
	for part := range strings.FieldsFuncSeq(name, func(c rune) bool { return c == '/' || c == '\\' }) {
		if part == ".." {
			return false
		}
	}
	return name != ""
}

// submodule writes the files of a submodule.
func (f *fetcher) submodule(ctx context.Context, parent *url.URL, s submodule, at place) error {
	f.submodules++
	switch {
	case f.submodules > f.limits.submodules:
		return refuseFile("there are more than %d submodules", f.limits.submodules)
	case at.level == maxSubmodules:
		return refuseFile("more than %d submodules contain each other", maxSubmodules)
	}
	address := resolve(parent.String(), s.url)
	to, err := parseURL(address)
	if err == nil {
		err = f.options.Check(withoutUser(parent), withoutUser(to))
	}
	if err != nil {
		return fmt.Errorf("submodule %s: %w", s.path, err)
	}
	if err := at.folder.MkdirAll(s.path, 0o755); err != nil {
		return err
	}
	if err := at.folder.Chmod(s.path, 0o755); err != nil {
		return err
	}
	folder, err := at.folder.OpenRoot(s.path)
	if err != nil {
		return err
	}
	defer folder.Close()
	inside := place{folder: folder, name: path.Join(at.name, s.path), depth: at.depth + strings.Count(s.path, "/") + 1, level: at.level + 1}
	_, err = f.repository(ctx, Request{URL: address, Ref: s.commit.String()}, inside)
	switch {
	case errors.Is(err, ErrNoRef): // clients fail too, and the commit of the module exists
		return hint.Wrap(refuse("submodule %s: %s: %v", s.path, display(address), err), "%s", hint.Of(err))
	case errors.Is(err, ErrNoRepository), errors.Is(err, ErrDenied): // the repository of the module exists
		return fmt.Errorf("submodule %s: %s: %w", s.path, display(address), hint.Flatten(err))
	case err != nil:
		return fmt.Errorf("submodule %s: %w", s.path, err)
	}
	return nil
}

// resolve returns the URL of a submodule. One that begins with ./ or ../ is relative to the URL of its repository.
func resolve(parent, url string) string {
	if !strings.HasPrefix(url, "./") && !strings.HasPrefix(url, "../") {
		return url
	}
	parent = strings.TrimSuffix(parent, "/")
	for {
		if rest, up := strings.CutPrefix(url, "../"); up {
			parent, url = parent[:max(strings.LastIndexByte(parent, '/'), 0)], rest
		} else if rest, here := strings.CutPrefix(url, "./"); here {
			url = rest
		} else {
			return parent + "/" + strings.TrimSuffix(url, "/")
		}
	}
}
