package lockfile

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/gohcl"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/provider"
)

// content is a lock file as gohcl decodes it.
type content struct {
	Providers []providerBlock `hcl:"provider,block"`
	Modules   []moduleBlock   `hcl:"module,block"`
}

// providerBlock is a provider block, with the positions that error messages need.
type providerBlock struct {
	Source      string         `hcl:"source_addr,label"`
	Version     string         `hcl:"version"`
	Constraints string         `hcl:"constraints,optional"`
	Hashes      *hcl.Attribute `hcl:"hashes,optional"`

	Body          hcl.Body  `hcl:",body"`
	At            hcl.Range `hcl:",type_range"`
	SourceAt      hcl.Range `hcl:"source_addr,label_range"`
	VersionAt     hcl.Range `hcl:"version,attr_value_range"`
	ConstraintsAt hcl.Range `hcl:"constraints,attr_value_range"`
}

// moduleBlock is a block that clients reserve for future use.
type moduleBlock struct {
	Path string    `hcl:"path,label"`
	Body hcl.Body  `hcl:",remain"`
	At   hcl.Range `hcl:",type_range"`
}

// Parse parses the content of a lock file. name is the path of the file, for messages. The error names the line of the first
// problem.
func Parse(name string, src []byte) (*File, error) {
	if len(src) > MaxBytes {
		return nil, fmt.Errorf("%s has more than %d bytes: no lock file is that large", name, MaxBytes)
	}
	if _, d := scan(src); d != nil {
		return nil, failure(name, hcl.Diagnostics{d})
	}
	var written content
	parsed, diags := hclsyntax.ParseConfig(src, name, hcl.InitialPos)
	if !diags.HasErrors() {
		diags = gohcl.DecodeBody(parsed.Body, nil, &written)
	}
	if diags.HasErrors() {
		return nil, failure(name, diags)
	}
	f := &File{Name: name, src: src}
	for _, block := range written.Providers {
		p, problems := block.decode()
		if earlier, ok := f.Provider(p.Address); ok {
			problems = append(problems, problem(block.At, "Duplicate provider lock", "%s is locked in line %d already.", p.Address, earlier.Line))
		}
		f.Providers, diags = append(f.Providers, p), append(diags, problems...)
	}
	if diags.HasErrors() {
		return nil, failure(name, diags)
	}
	if len(written.Modules) > 0 {
		f.Warnings = append(f.Warnings, fmt.Sprintf("%s: locks of modules are not supported, by clients either", f.Where(written.Modules[0].At.Start.Line)))
	}
	return f, nil
}

// decode returns the entry of a provider block, and a diagnostic for each problem.
func (b *providerBlock) decode() (p Provider, problems hcl.Diagnostics) {
	refuse := func(at hcl.Range, summary, detail string, args ...any) {
		problems = append(problems, problem(at, summary, detail, args...))
	}
	var err error
	p = Provider{Constraints: b.Constraints, Line: b.At.Start.Line, body: b.Body.(*hclsyntax.Body)}
	if p.Address, err = provider.ParseAddress(b.Source); err != nil {
		refuse(b.SourceAt, "Invalid provider source address", "%v.", err)
	} else if p.Address.String() != b.Source {
		refuse(b.SourceAt, "Provider source address not in canonical form", "It must be written as %q.", p.Address.String())
	}
	if p.Version, err = provider.ParseVersion(b.Version); err != nil {
		refuse(b.VersionAt, "Invalid provider version number", "%v.", err)
	}
	// An empty constraint is valid. Clients only show constraints in messages.
	if _, err := provider.ParseConstraint(b.Constraints); err != nil && b.Constraints != "" {
		refuse(b.ConstraintsAt, "Invalid provider version constraints", "%v.", err)
	}
	if b.Hashes != nil {
		problems = append(problems, p.decodeHashes(b.Hashes.Expr)...)
	}
	return p, problems
}

// decodeHashes decodes a list of hashes. It refuses an empty list, and a hash without a scheme, as clients do.
func (p *Provider) decodeHashes(expr hcl.Expression) hcl.Diagnostics {
	list, ok := expr.(*hclsyntax.TupleConsExpr)
	if !ok || len(list.Exprs) == 0 {
		return hcl.Diagnostics{problem(expr.Range(), "Invalid provider hash set", "Hashes are a list of at least one text, or are left out.")}
	}
	for _, item := range list.Exprs {
		var text string
		if diags := gohcl.DecodeExpression(item, nil, &text); diags.HasErrors() {
			return diags
		}
		if strings.Index(text, ":") < 1 {
			return hcl.Diagnostics{problem(item.Range(), "Invalid provider hash", "%.100q must start with a scheme and a colon, such as h1: or zh:.", text)}
		}
		p.Hashes, p.ranges = append(p.Hashes, text), append(p.ranges, item.Range())
	}
	return nil
}

func problem(at hcl.Range, summary, detail string, args ...any) *hcl.Diagnostic {
	return &hcl.Diagnostic{Severity: hcl.DiagError, Summary: summary, Detail: fmt.Sprintf(detail, args...), Subject: &at}
}

// failure returns one error for all diagnostics. The error describes the first one and counts the others.
func failure(name string, diags hcl.Diagnostics) error {
	first := diags[0]
	// Shorten Detail, because it can quote any amount of the file's text.
	text := fmt.Sprintf("%s:%d: %s: %.400s", name, first.Subject.Start.Line, strings.ToLower(first.Summary[:1])+first.Summary[1:], strings.TrimSuffix(first.Detail, "."))
	if more := len(diags) - 1; more > 0 {
		text += fmt.Sprintf(" (and %d more)", more)
	}
	return hint.New(text, "correct the line, or have tofu init or terraform init write the lock file anew")
}

// The HCL parser has no limits. It recurses into brackets, needs quadratic time for some texts and expressions, and uses about
// a kilobyte of memory for each token. Therefore Parse first scans a file for constructs that no lock file contains.
const (
	maxDepth = 8 // the maximum depth of nested brackets; a hash is two levels deep
	// maxTokens is the maximum number of tokens in a file. A hash on its own line takes five tokens, so 300 providers with 30
	// hashes each are about as many as a file can contain.
	maxTokens = 50_000
)

// token matches one token or a run of spaces at the beginning of a text. It matches neither operators nor a quoted text with a
// template or an escape, which the HCL lexer turns into many tokens.
var token = regexp.MustCompile(`^(?: +|\t|\r?\n|(?:#|//).*\n?|(?s:/\*.*?\*/)|"[^"\n\\$%]*"|\w+|[=,{}\[\]])`)

// scan counts the tokens of a file. It returns a diagnostic for a construct that no lock file contains, such as an expression
// or deep nesting. It does not check the grammar.
func scan(src []byte) (tokens int, refused *hcl.Diagnostic) {
	line := 1
	refuse := func(summary, detail string, args ...any) (int, *hcl.Diagnostic) {
		return tokens, problem(hcl.Range{Start: hcl.Pos{Line: line}}, summary, detail, args...)
	}
	if !utf8.Valid(src) {
		return refuse("Invalid character encoding", "A lock file is in UTF-8.")
	}
	if bytes.Count(src, []byte("\r")) != bytes.Count(src, []byte("\r\n")) {
		return refuse("Invalid character", "A lock file has no carriage return within a line.")
	}
	var open brackets
	before := byte(' ') // the last byte of the previous token that is neither white space nor a comment
	for rest := bytes.TrimPrefix(src, []byte("\ufeff")); len(rest) > 0; {
		t := token.Find(rest)
		first := rest[0]
		if t == nil || first == '[' && !strings.ContainsRune("=[,", rune(before)) || first == '=' && before == '=' {
			return refuse("Expression", "A lock file has texts in quotes and no expressions, but here is %.20q.", rest)
		}
		if !open.follow(first) {
			return refuse("Brackets", "Here is a %q that closes nothing.", first)
		}
		if len(open) > maxDepth {
			return refuse("Too deep", "A lock file has at most %d levels of brackets.", maxDepth)
		}
		switch {
		case first == '"':
			tokens += 3 // the text and both quotes
		case first != ' ':
			tokens++
		}
		if !strings.ContainsRune(" \t\r\n#/", rune(first)) {
			before = t[len(t)-1]
		}
		line += bytes.Count(t, []byte("\n"))
		if tokens > maxTokens {
			return refuse("Too long", "A lock file has at most %d words, texts and signs.", maxTokens)
		}
		rest = rest[len(t):]
	}
	return tokens, nil
}

// brackets contains the expected closing bracket for each open bracket. The innermost bracket is last.
type brackets []byte

// follow opens or closes a bracket if b is a bracket. It returns false if b is a closing bracket that does not match the
// innermost open bracket.
func (open *brackets) follow(b byte) bool {
	switch b {
	case '[':
		*open = append(*open, ']')
	case '{':
		*open = append(*open, '}')
	case ']', '}':
		last := len(*open) - 1
		if last < 0 || (*open)[last] != b {
			return false
		}
		*open = (*open)[:last]
	}
	return true
}
