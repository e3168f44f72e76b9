package cliconfig

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/hcl/ast"
	"github.com/hashicorp/hcl/hcl/token"
	"github.com/opentofu/svchost"
)

// The library's printer cannot be used. It writes "direct = {}" for a block of one line, and clients refuse that. It also
// needs the positions of items, but merged items have none.

// renderItem writes an item in HCL syntax.
func renderItem(out *strings.Builder, item *ast.ObjectItem, depth int) {
	out.WriteString(strings.Repeat("  ", depth))
	for _, key := range item.Keys {
		out.WriteString(key.Token.Text + " ")
	}
	if isArgument(item) {
		out.WriteString("= ")
	}
	renderValue(out, item.Val, depth)
	out.WriteString("\n")
}

func renderValue(out *strings.Builder, v ast.Node, depth int) {
	switch v := v.(type) {
	case *ast.LiteralType:
		out.WriteString(v.Token.Text)
	case *ast.ListType:
		out.WriteString("[")
		for i, element := range v.List {
			if i > 0 {
				out.WriteString(", ")
			}
			renderValue(out, element, depth)
		}
		out.WriteString("]")
	case *ast.ObjectType:
		out.WriteString("{\n")
		for _, item := range v.List.Items {
			renderItem(out, item, depth+1)
		}
		out.WriteString(strings.Repeat("  ", depth) + "}")
	}
}

// isArgument reports whether an item in HCL syntax has an equals sign.
func isArgument(item *ast.ObjectItem) bool {
	_, isObject := item.Val.(*ast.ObjectType)
	return !isObject || item.Assign.IsValid()
}

// nativeItems returns the items of a file in HCL syntax. It rewrites the tokens of JSON and heredocs as quoted strings,
// and makes each object in JSON a block.
func nativeItems(list *ast.ObjectList) []*ast.ObjectItem {
	json := len(list.Items) > 0 && list.Items[0].Keys[0].Token.JSON
	ast.Walk(list, func(n ast.Node) (ast.Node, bool) {
		switch n := n.(type) {
		case *ast.ObjectItem:
			if json {
				toBlock(n)
			}
		case *ast.ObjectKey:
			n.Token = nativeToken(n.Token)
		case *ast.LiteralType:
			n.Token = nativeToken(n.Token)
		}
		return n, true
	})
	if json {
		return unfoldInstallation(list.Items)
	}
	return list.Items
}

// toBlock makes an item of a file in JSON a block if its value is an object. The library's parser also accepts a value with
// several names, such as "a" "b": 1, which becomes a block that contains an argument.
func toBlock(item *ast.ObjectItem) {
	if _, ok := item.Val.(*ast.ObjectType); !ok && len(item.Keys) > 1 {
		last := len(item.Keys) - 1
		inner := &ast.ObjectItem{Keys: item.Keys[last:], Assign: item.Assign, Val: item.Val}
		item.Keys, item.Val = item.Keys[:last:last], &ast.ObjectType{List: &ast.ObjectList{Items: []*ast.ObjectItem{inner}}}
	}
	if _, ok := item.Val.(*ast.ObjectType); ok {
		item.Assign = token.Pos{}
	}
}

func nativeToken(t token.Token) token.Token {
	null := t.Type == token.STRING && t.Text == ""
	if t.Type == token.HEREDOC || t.Type == token.STRING && t.JSON || null {
		native := stringToken(t.Value().(string))
		native.Pos = t.Pos
		return native
	}
	return t
}

// stringToken returns a quoted string. It escapes "${", because HCL 1 does not unescape the text up to the closing brace.
func stringToken(s string) token.Token {
	return token.Token{Type: token.STRING, Text: strings.ReplaceAll(strconv.Quote(s), "${", `\u0024{`)}
}

// keyText returns the value of a key.
func keyText(key *ast.ObjectKey) string {
	s, _ := key.Token.Value().(string)
	return s
}

// hostItem returns a host block.
func hostItem(host svchost.Hostname, services map[string]any) *ast.ObjectItem {
	body := &ast.ObjectList{Items: []*ast.ObjectItem{newItem("services", objectNode(services))}}
	return newItem("host", &ast.ObjectType{List: body}, host.ForDisplay())
}

// newItem returns a block if v is an object. Otherwise, it returns an argument.
func newItem(name string, v ast.Node, labels ...string) *ast.ObjectItem {
	item := &ast.ObjectItem{Val: v}
	for _, s := range append([]string{name}, labels...) {
		item.Keys = append(item.Keys, &ast.ObjectKey{Token: stringToken(s)})
	}
	return item
}

func objectNode(members map[string]any) *ast.ObjectType {
	list := &ast.ObjectList{}
	for _, name := range sortedKeys(members) {
		objects, ok := members[name].([]map[string]any) // repeated blocks, as HCL 1 decodes them
		for _, object := range objects {
			list.Add(newItem(name, objectNode(object)))
		}
		if v := valueNode(members[name]); !ok && v != nil {
			list.Add(newItem(name, v))
		}
	}
	return &ast.ObjectType{List: list}
}

// valueNode returns the node of a value that was decoded from HCL 1 or JSON, or nil for null.
func valueNode(v any) ast.Node {
	switch v := v.(type) {
	case nil:
		return nil
	case map[string]any:
		return objectNode(v)
	case []any:
		list := &ast.ListType{}
		for _, element := range v {
			if node := valueNode(element); node != nil {
				list.Add(node)
			}
		}
		return list
	case string:
		return &ast.LiteralType{Token: stringToken(v)}
	case float64:
		return &ast.LiteralType{Token: token.Token{Type: token.FLOAT, Text: strconv.FormatFloat(v, 'f', -1, 64)}}
	default: // an integer or a boolean
		return &ast.LiteralType{Token: token.Token{Type: token.NUMBER, Text: fmt.Sprint(v)}}
	}
}

func sortedKeys[K ~string, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
