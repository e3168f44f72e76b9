package modulezip

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"regexp"
	"regexp/syntax"
	"strings"
	"text/scanner"
	"unicode/utf8"

	"github.com/ocibridge/ocibridge/internal/base/files"
)

const (
	ignoreFile     = ".terraformignore"
	maxIgnoreBytes = 60 << 10 // the maximum size of an ignore file in bytes
	maxRules       = 1000     // in an ignore file
	maxRule        = 256      // the maximum length of a rule in bytes
	// maxRuleSteps is the maximum number of instructions in a rule's compiled pattern. Only a counted repetition, such as
	// {500}, can exceed it in a rule of maxRule bytes.
	maxRuleSteps = 1000
	// maxSteps bounds the comparisons of all names with all rules. A comparison costs the length of the name times the
	// instructions of the rule. On a slow machine, this many steps take minutes.
	maxSteps = 1 << 32
)

// ignoreRules decides which files an ignore file excludes. It follows go-slug, the library of OpenTofu and Terraform.
// go-slug itself can only pack a folder of the disk, and cannot be interrupted. Names contain slashes as separators,
// also on Windows.
type ignoreRules struct {
	rules []ignoreRule
	steps int64 // the steps taken so far
}

// ignoreRule is one rule of an ignore file.
type ignoreRule struct {
	pattern *regexp.Regexp // nil: no regular expression; the rule matches nothing
	steps   int            // the number of instructions in the pattern
	negated bool           // the rule begins with !
	last    bool           // no negated rule follows
}

// readRules reads the ignore file of a folder. A folder without an ignore file has no rules.
func readRules(root *os.Root) (*ignoreRules, error) {
	if info, err := root.Stat(ignoreFile); err != nil || !info.Mode().IsRegular() {
		return &ignoreRules{}, nil // the list of files says what is wrong with it
	}
	f, _, err := files.OpenRegular(root, ignoreFile)
	if err != nil {
		return nil, readError(err, "remove the file")
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxIgnoreBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read the module: %w", err)
	}
	if len(data) > maxIgnoreBytes {
		return nil, refuse("shorten it", "%s has more than %d bytes", ignoreFile, maxIgnoreBytes)
	}
	return parseRules(data)
}

// parseRules parses the content of an ignore file. It removes the byte order mark that some Windows editors write,
// which would keep the first rule from matching. It refuses UTF-16, in which no rule would match.
func parseRules(data []byte) (*ignoreRules, error) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if !utf8.Valid(data) || bytes.IndexByte(data, 0) >= 0 {
		return nil, refuse("save it as UTF-8", "%s is not UTF-8, so its rules would match nothing", ignoreFile)
	}
	r := &ignoreRules{}
	n := 0
	for line := range bytes.Lines(data) {
		n++
		text := strings.TrimSpace(string(line))
		if strings.TrimPrefix(text, "!") == "" || text[0] == '#' {
			continue
		}
		if len(text) > maxRule {
			return nil, refuse("shorten the rule", "line %d of %s has %d bytes, and a rule has at most %d", n, ignoreFile, len(text), maxRule)
		}
		if len(r.rules) == maxRules {
			return nil, refuse("exclude whole folders, by rules that end with a slash, in place of single files", "%s has more than %d rules", ignoreFile, maxRules)
		}
		rule, err := parseRule(text)
		if err != nil {
			return nil, refuse("shorten its counted repetition, such as {500}", "line %d of %s %v", n, ignoreFile, err)
		}
		r.rules = append(r.rules, rule)
	}
	last := true
	for i := len(r.rules) - 1; i >= 0; i-- {
		r.rules[i].last = last
		last = last && !r.rules[i].negated
	}
	return r, nil
}

// parseRule parses a rule, which is not empty.
func parseRule(text string) (ignoreRule, error) {
	text, negated := strings.CutPrefix(text, "!")
	if strings.HasSuffix(text, "/") {
		text += "**" // everything in the folder
	}
	if rest, atTop := strings.CutPrefix(text, "/"); atTop {
		text = rest
	} else {
		text = "**/" + text
	}
	rule := ignoreRule{negated: negated}
	expression := translate(text)
	tree, err := syntax.Parse(expression, syntax.Perl)
	if err != nil {
		return rule, nil
	}
	program, _ := syntax.Compile(tree.Simplify()) // the error is always nil
	if rule.steps = len(program.Inst); rule.steps > maxRuleSteps {
		return rule, fmt.Errorf("is a pattern of %d steps, and a rule has at most %d", rule.steps, maxRuleSteps)
	}
	rule.pattern, err = regexp.Compile(expression)
	return rule, err
}

// translate translates the pattern of a rule to a regular expression. The characters that a rule does not define, such as [
// and +, keep their meaning in regular expressions, as in go-slug.
func translate(pattern string) string {
	var out strings.Builder
	scan := scanner.Scanner{Error: func(*scanner.Scanner, string) {}} // by default, it prints errors
	scan.Init(strings.NewReader(pattern))
	take := func(c rune) bool { return scan.Peek() == c && scan.Next() == c }
	out.WriteByte('^')
	for c := scan.Next(); c != scanner.EOF; c = scan.Next() {
		switch {
		case c == '*' && take('*'):
			take('/') // **/ also matches no folder
			if scan.Peek() == scanner.EOF {
				out.WriteString(".*")
			} else {
				out.WriteString("(.*/)?")
			}
		case c == '*':
			out.WriteString("[^/]*")
		case c == '?':
			out.WriteString("[^/]")
		case c == '.' || c == '$':
			out.WriteString(`\` + string(c))
		case c == '\\' && scan.Peek() != scanner.EOF:
			out.WriteString(`\` + string(scan.Next()))
		default:
			out.WriteRune(c)
		}
	}
	out.WriteByte('$')
	return out.String()
}

// match reports whether the last rule that matches a name excludes it, and whether no later rule can include it again.
func (r *ignoreRules) match(ctx context.Context, name string) (excluded, finally bool, err error) {
	for _, rule := range r.rules {
		if ctx.Err() != nil {
			return false, false, context.Cause(ctx)
		}
		if rule.pattern == nil {
			continue
		}
		if r.steps += int64(rule.steps * len(name)); r.steps > maxSteps {
			return false, false, errRulesCost
		}
		if rule.pattern.MatchString(name) {
			excluded, finally = !rule.negated, rule.last
		}
	}
	return excluded, excluded && finally, nil
}

// errRulesCost is the error about rules that cost too much for the files of a module.
var errRulesCost = refuse("exclude whole folders, by rules that end with a slash, without a later rule that begins with !, or push from a clean checkout",
	"%s has too many rules for this many files", ignoreFile)

// excludes reports whether the rules exclude a file.
func (r *ignoreRules) excludes(ctx context.Context, name string) (bool, error) {
	excluded, _, err := r.match(ctx, name)
	return excluded, err
}

// skips reports whether the rules exclude a folder and everything in it. A rule that matches the folder's name without the
// slash at the end concerns none of its files, as in go-slug.
func (r *ignoreRules) skips(ctx context.Context, name string) (bool, error) {
	excluded, err := r.excludes(ctx, name)
	if excluded || err != nil {
		return false, err
	}
	_, finally, err := r.match(ctx, name+"/")
	return finally, err
}
