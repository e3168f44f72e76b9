package main

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// find finds the declaration of a function, a type, a variable or a constant. It returns the path and the source
// of the file, and the byte offsets of the declaration's beginning and end. The parameter in is the folder of
// the package, a dot and a name within the package: "trust.checkCost", "trust.Policy.pinned",
// "gateway/access.(*Guard).check".
func find(in string) (file, src string, from, to int, err error) {
	dir, base := path.Split(in)
	pkg, name, _ := strings.Cut(base, ".")
	dir += pkg
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", "", 0, 0, err
	}
	for _, e := range entries {
		if ok, err := build.Default.MatchFile(dir, e.Name()); !ok || err != nil || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return "", "", 0, 0, err
		}
		fset := token.NewFileSet()
		parsed, err := parser.ParseFile(fset, e.Name(), data, 0)
		if err != nil {
			return "", "", 0, 0, err
		}
		if node := declared(parsed)[name]; node != nil {
			return filepath.Join(dir, e.Name()), string(data), fset.Position(node.Pos()).Offset, fset.Position(node.End()).Offset, nil
		}
	}
	return "", "", 0, 0, fmt.Errorf("no file in %s declares %q", dir, name)
}

// declared returns the declarations of a file, by name. The name of a method begins with its receiver, as in
// "(*Guard).check" and "Policy.pinned".
func declared(file *ast.File) map[string]ast.Node {
	nodes := map[string]ast.Node{}
	for _, decl := range file.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			nodes[functionName(decl)] = decl
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					nodes[spec.Name.Name] = spec
				case *ast.ValueSpec:
					for _, name := range spec.Names {
						nodes[name.Name] = spec
					}
				}
			}
		}
	}
	return nodes
}

func functionName(decl *ast.FuncDecl) string {
	if decl.Recv == nil {
		return decl.Name.Name
	}
	return receiverName(decl.Recv.List[0].Type) + "." + decl.Name.Name
}

// receiverName returns the name of a receiver's type without its type parameters.
func receiverName(t ast.Expr) string {
	switch t := t.(type) {
	case *ast.StarExpr:
		return "(*" + receiverName(t.X) + ")"
	case *ast.IndexExpr:
		return receiverName(t.X)
	case *ast.IndexListExpr:
		return receiverName(t.X)
	case *ast.Ident:
		return t.Name
	}
	return ""
}
