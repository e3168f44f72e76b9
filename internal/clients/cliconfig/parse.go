package cliconfig

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/hashicorp/hcl"
	"github.com/hashicorp/hcl/hcl/ast"
	"github.com/hashicorp/hcl/hcl/parser"
	"github.com/hashicorp/hcl/hcl/token"

	"github.com/ocibridge/ocibridge/auth/login"
	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// file is the part of one configuration file that concerns ocibridge.
type file struct {
	Hosts       map[string]hostBlock      `hcl:"host"`
	Credentials map[string]map[string]any `hcl:"credentials"`
	Helpers     map[string]helperBlock    `hcl:"credentials_helper"`
	mirrors     []OCIMirror
	credentials []login.Login
	defaults    []*login.Defaults
	warnings    []string
}

type hostBlock struct {
	Services map[string]any `hcl:"services"`
}

type helperBlock struct {
	Args []string `hcl:"args"`
}

const parseHelp = "OpenTofu and Terraform cannot read the file either: correct it, or name another one in TF_CLI_CONFIG_FILE"

// parse parses a configuration file, and decodes the blocks that concern ocibridge.
func parse(env Environment, name string, src []byte) (f *file, err error) {
	defer invalidLiteral(name, &err)
	f = &file{}
	list, err := parseInto(f, name, src)
	if err != nil {
		return nil, err
	}
	if f.mirrors, err = mirrors(name, list); err != nil {
		return nil, err
	}
	if err = f.ociCredentials(name, list); err != nil {
		return nil, err
	}
	f.defaults, err = ociDefaults(env, name, list)
	return f, err
}

// parseInto parses a configuration file in HCL 1 or JSON, and decodes it into a struct. The clients use the same
// library. The caller must defer [invalidLiteral].
func parseInto(out any, name string, src []byte) (*ast.ObjectList, error) {
	root, err := hcl.ParseBytes(src)
	if err != nil {
		return nil, invalid(name, err)
	}
	if err := hcl.DecodeObject(out, root); err != nil {
		return nil, invalid(name, err)
	}
	list, ok := root.Node.(*ast.ObjectList)
	if !ok {
		return &ast.ObjectList{}, nil
	}
	return list, nil
}

// invalidLiteral sets err if the function that defers it panics, as the library does for some files.
func invalidLiteral(name string, err *error) {
	if recover() != nil {
		*err = hint.New(fmt.Sprintf("%s does not parse", name), parseHelp)
	}
}

// mirrors returns the oci_mirror blocks at top level and in provider_installation blocks, in the order of the file. In
// JSON, the blocks at top level come first, because the JSON parser records no positions.
func mirrors(name string, root *ast.ObjectList) ([]OCIMirror, error) {
	found := append(blocks(root, "oci_mirror"), blocks(root, "provider_installation", "oci_mirror")...)
	slices.SortStableFunc(found, func(a, b *ast.ObjectItem) int {
		return cmp.Compare(position(a).Offset, position(b).Offset)
	})
	var out []OCIMirror
	for _, item := range found {
		m, err := mirror(item)
		m.Source = origin(name, item)
		if err != nil {
			return nil, hint.Wrap(fmt.Errorf("%s: %w", m.Source, err),
				`write: oci_mirror { repository_template = "ghcr.io/acme/${namespace}/${type}" }, with include and exclude lists where wanted`)
		}
		out = append(out, m)
	}
	return out, nil
}

func mirror(item *ast.ObjectItem) (m OCIMirror, err error) {
	body, ok := item.Val.(*ast.ObjectType)
	if !ok || len(item.Keys) > 0 {
		return m, errors.New("oci_mirror is a block without a label")
	}
	if err := hcl.DecodeObject(&m, body); err != nil {
		return m, fmt.Errorf("invalid oci_mirror block: %w", err)
	}
	if m.Template == "" {
		err = errors.New("the oci_mirror block has no repository_template")
	}
	return m, err
}

// blocks returns the blocks at a path of block types, such as provider_installation and oci_mirror. The keys of the
// returned items do not contain these types. In JSON, the parser merges an object that contains only objects into its
// parent. A type of the path can then be a second key of the same item.
func blocks(list *ast.ObjectList, path ...string) []*ast.ObjectItem {
	items := list.Filter(path[0]).Items
	if len(path) == 1 {
		return items
	}
	var out []*ast.ObjectItem
	for _, item := range items {
		inner := &ast.ObjectList{Items: []*ast.ObjectItem{item}}
		if body, ok := item.Val.(*ast.ObjectType); ok && len(item.Keys) == 0 {
			inner = body.List
		}
		out = append(out, blocks(inner, path[1:]...)...)
	}
	return out
}

// position returns the position where the body of a block begins.
func position(item *ast.ObjectItem) token.Pos {
	if body, ok := item.Val.(*ast.ObjectType); ok && !body.Lbrace.IsValid() {
		return body.List.Pos()
	}
	return item.Val.Pos()
}

// invalid returns the error for a file that does not parse, with the position of the fault. The error contains the
// library's message only if the message is known not to quote the text of the file.
func invalid(name string, err error) error {
	place := name
	if perr, ok := errors.AsType[*parser.PosError](err); ok {
		if perr.Pos.IsValid() {
			place = fmt.Sprintf("%s:%d:%d", name, perr.Pos.Line, perr.Pos.Column)
		}
		err = perr.Err
	} else if m := leadingPosition.FindStringSubmatch(err.Error()); m != nil {
		place = fmt.Sprintf("%s:%s", name, m[1])
		err = errors.New(m[2])
	}
	return hint.New(fmt.Sprintf("%s does not parse%s", place, publicProblem(err)), parseHelp)
}

// publicProblem returns ": " and the message of the library's error, or "" if the message could quote the text of the
// file.
func publicProblem(err error) string {
	if perr, ok := errors.AsType[*parser.PosError](err); ok {
		err = perr.Err
	}
	if quotesNothing.MatchString(err.Error()) {
		return ": " + strings.TrimSuffix(err.Error(), "!")
	}
	return ""
}

var (
	leadingPosition = regexp.MustCompile(`^(?:At )?(\d+:\d+): (.*)$`)
	quotesNothing   = regexp.MustCompile(`^(object expected closing RBRACE got: [A-Z]+|nested object expected: LBRACE got: [A-Z]+|` +
		`no object keys found!|expected: [A-Z |]+ got: [A-Z]+|illegal character|literal not terminated|` +
		`unexpected token while parsing list: [A-Z]+|The argument "?\w+"? at \S+ was already set.*|[\w.]+: unknown type for \w+ \*ast\.\w+|` +
		`[\w.]+: not an object type for map \(\*ast\.\w+\))$`)
)
