package artifact

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

// LintTags reports two kinds of tags. OpenTofu reads a tag of the first kind as a version
// whose canonical tag is different. A tag of the second kind looks like a version, but no
// client recognises it. A finding is an error if the tag makes OpenTofu fail, or if no
// other tag names the version.
func LintTags(tags []ociaddr.Tag) []Finding {
	l := &tagLinter{tags: map[ociaddr.Tag]bool{}}
	for _, t := range tags {
		l.tags[t] = true
		if v, ok := t.Version(); ok && !v.IsPrerelease() && v.Compare(l.newest) > 0 {
			l.newest = v
		}
	}
	var out []Finding
	for _, t := range tags {
		if _, ok := t.Version(); ok {
			continue
		}
		read, err := provider.ReadByOpenTofu(strings.ReplaceAll(string(t), "_", "+"))
		switch {
		case errors.Is(err, provider.ErrNumberTooLarge):
			out = append(out, Finding{SeverityError, string(t),
				fmt.Sprintf("OpenTofu cannot read tag %q, and tofu init fails, or a gateway does not serve it: %v", t, err),
				"remove the tag: until then, OpenTofu may install no version from this repository; if it names a version, release it with smaller numbers"})
		case err == nil:
			out = append(out, l.readByOpenTofu(t, read))
		case looksLikeVersion.MatchString(string(t)):
			out = append(out, l.readByNobody(t))
		}
	}
	return out
}

// tagLinter checks one tag against the other tags of its repository.
type tagLinter struct {
	tags   map[ociaddr.Tag]bool
	newest provider.Version // the newest release; clients install it if no constraint is given
}

// readByOpenTofu reports the tag t, which OpenTofu reads as the version v. OpenTofu then
// requests the canonical tag of v, which is not t.
func (l *tagLinter) readByOpenTofu(t ociaddr.Tag, v provider.Version) Finding {
	want := ociaddr.Tag(strings.ReplaceAll(v.String(), "+", "_"))
	if l.tags[want] {
		return Finding{SeverityWarning, string(t), fmt.Sprintf("OpenTofu reads tag %q as version %s, which has a tag of its own", t, v),
			"remove this tag: no client reads what it names"}
	}
	what := fmt.Sprintf("OpenTofu reads tag %q as version %s, which does not exist: tofu init fails", t, v)
	if v.IsPrerelease() || v.Compare(l.newest) < 0 {
		what += " where a constraint selects it"
	}
	return Finding{SeverityError, string(t), what, fmt.Sprintf("remove this tag; if it names version %s, tag it %s first", v, want)}
}

// readByNobody reports a tag that looks like a version although no client reads it.
func (l *tagLinter) readByNobody(t ociaddr.Tag) Finding {
	_, err := provider.ParseVersion(strings.ReplaceAll(string(t), "_", "+"))
	f := Finding{SeverityError, string(t), "the tag looks like a version, and no client recognises it", hint.Of(err)}
	meant, ok := provider.LooseVersion(string(t))
	if !ok {
		return f
	}
	tag, err := ociaddr.VersionTag(meant)
	if err == nil {
		f.Hint = fmt.Sprintf("tag it %s, and remove this one", tag)
	}
	// Tags such as v3.2 are often kept next to 3.2.4, because container images usually have
	// such tags.
	if l.tags[tag] || strings.Count(string(t), ".") < 2 {
		f.Severity = SeverityWarning
	}
	return f
}

// looksLikeVersion matches an optional v, two numbers with a dot between them, and an
// optional suffix that begins with a dot, an underscore or a hyphen.
var looksLikeVersion = regexp.MustCompile(`^[vV]?[0-9]+\.[0-9]+([._-].*)?$`)
