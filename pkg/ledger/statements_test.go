package ledger_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/posthouse-io/posthouse/pkg/local/localtest"
)

// statements reads every string constant of a file: no list to keep in step.
func statements(t *testing.T, file string) map[string]string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, decl := range parsed.Decls {
		group, ok := decl.(*ast.GenDecl)
		if !ok || group.Tok != token.CONST {
			continue
		}
		for _, spec := range group.Specs {
			value := spec.(*ast.ValueSpec)
			for i, name := range value.Names {
				literal, ok := value.Values[i].(*ast.BasicLit)
				if !ok {
					t.Fatalf("%s: %s is no literal", file, name.Name)
				}
				text, err := strconv.Unquote(literal.Value)
				if err != nil {
					t.Fatal(err)
				}
				found[name.Name] = text
			}
		}
	}
	if len(found) == 0 {
		t.Fatalf("%s has no statement", file)
	}
	return found
}

// all is every statement that this room runs, those of the queue among them, and the
// claims as they are put together.
func all(t *testing.T) map[string]string {
	t.Helper()
	found := statements(t, "sql.go")
	maps.Copy(found, statements(t, "../queue/sql.go"))
	maps.Copy(found, statements(t, "../pinned/sql.go"))
	found["claimRows"], found["claimDeferred"] = found["claimHead"]+found["taken"], found["deferredHead"]+found["takenBare"]
	for _, part := range []string{"claimHead", "taken", "deferredHead", "takenBare"} {
		delete(found, part)
	}
	return found
}

func TestEveryStatementPreparesOnTheSchema(t *testing.T) {
	t.Parallel()
	conn := connect(t, localtest.Postgres(t))
	found := all(t)
	for _, file := range []string{"../outbox/sql.go", "../lane/sql.go", "../quota/sql.go", "../audit/sql.go", "../docket/sql.go"} {
		for name, sql := range statements(t, file) {
			if name == "taken" { // the end of a claim: put together with its head
				sql = strings.ReplaceAll(statements(t, "../queue/sql.go")["claimHead"], "'delivery'", "'document'") + sql
			}
			found[file+" "+name] = sql
		}
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if _, err := conn.Prepare(t.Context(), name, found[name]); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
