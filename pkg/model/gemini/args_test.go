package gemini

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestArguments(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ values, want string }{
		"nothing":          {``, `{}`},
		"order":            {`{"jsonPath":"$.z","numberValue":1} {"jsonPath":"$.a","numberValue":12345678901234567890}`, `{"z":1,"a":12345678901234567890}`},
		"text in pieces":   {`{"jsonPath":"$.t","stringValue":"a","willContinue":true} {"jsonPath":"$.u","boolValue":false} {"jsonPath":"$.t","stringValue":"<b>"}`, `{"t":"a<b>","u":false}`},
		"text of nothing":  {`{"jsonPath":"$.t"}`, `{"t":""}`},
		"text that ends":   {`{"jsonPath":"$.t","willContinue":true} {"jsonPath":"$.t","stringValue":"a","willContinue":true} {"jsonPath":"$.t"}`, `{"t":"a"}`},
		"null":             {`{"jsonPath":"$.n","nullValue":"NULL_VALUE"} {"jsonPath":"$.m","nullValue":null}`, `{"n":null,"m":null}`},
		"lists":            {`{"jsonPath":"$.l[0][0].x","numberValue":1} {"jsonPath":"$.l[0][1]","numberValue":2} {"jsonPath":"$.l[1]","numberValue":3}`, `{"l":[[{"x":1},2],3]}`},
		"quoted names":     {`{"jsonPath":"$['a.b']","numberValue":1} {"jsonPath":"$[\"c'd\"]['e\\'f'].g","numberValue":2} {"jsonPath":"$['\\u00e4']","numberValue":3}`, `{"a.b":1,"c'd":{"e'f":{"g":2}},"ä":3}`},
		"taken":            {`{"jsonPath":"$.a","numberValue":1} {"jsonPath":"$.a","numberValue":1}`, ``},
		"below a number":   {`{"jsonPath":"$.a","numberValue":1} {"jsonPath":"$.a.b","numberValue":1}`, ``},
		"name in a list":   {`{"jsonPath":"$.a[0]","numberValue":1} {"jsonPath":"$.a.b","numberValue":1}`, ``},
		"gap in a list":    {`{"jsonPath":"$.a[1]","numberValue":1}`, ``},
		"far in a list":    {`{"jsonPath":"$.a[999999999999999999999]","numberValue":1}`, ``},
		"no path":          {`{"jsonPath":"a","numberValue":1}`, ``},
		"empty name":       {`{"jsonPath":"$..a","numberValue":1}`, ``},
		"wildcard":         {`{"jsonPath":"$[*]","numberValue":1}`, ``},
		"unclosed":         {`{"jsonPath":"$['a","numberValue":1}`, ``},
		"unclosed bracket": {`{"jsonPath":"$['a'","numberValue":1}`, ``},
		"too deep":         {`{"jsonPath":"$` + strings.Repeat(".a", 201) + `","numberValue":1}`, ``},
		"text continues":   {`{"jsonPath":"$.t","stringValue":"a","willContinue":true}`, ``},
		"item continues":   {`{"jsonPath":"$.l[0]","stringValue":"a"} {"jsonPath":"$.l[1]","stringValue":"b","willContinue":true}`, ``},
		"number in a text": {`{"jsonPath":"$.t","stringValue":"a","willContinue":true} {"jsonPath":"$.t","numberValue":1}`, ``},
		"null in a text":   {`{"jsonPath":"$.t","stringValue":"a","willContinue":true} {"jsonPath":"$.t","nullValue":"NULL_VALUE"}`, ``},
		"true in a text":   {`{"jsonPath":"$.t","stringValue":"a","willContinue":true} {"jsonPath":"$.t","boolValue":true}`, ``},
		"text has ended":   {`{"jsonPath":"$.t","stringValue":"a"} {"jsonPath":"$.t"}`, ``},
		"piece of nothing": {`{"jsonPath":"$.t","stringValue":"a","willContinue":true} {"jsonPath":"$.t","willContinue":true} {"jsonPath":"$.t","stringValue":"b"}`, `{"t":"ab"}`},
		"only nothing":     {`{"jsonPath":"$.t","willContinue":true} {"jsonPath":"$.t","willContinue":true}`, ``},
		"nested continues": {`{"jsonPath":"$.l[0][0].t","willContinue":true} {"jsonPath":"$.l[0][1]","numberValue":1}`, ``},
		"items that end":   {`{"jsonPath":"$.l[0]","stringValue":"a","willContinue":true} {"jsonPath":"$.l[0]","stringValue":"b"} {"jsonPath":"$.l[1]"}`, `{"l":["ab",""]}`},
	} {
		var n node
		got, ok := fill(t, &n, test.values)
		if ok != (test.want != "") || ok && got != test.want {
			t.Errorf("%s: %s, %t, want %s", name, got, ok, test.want)
		}
	}
}

// fill sets values and returns the result, and false if it is incomplete.
func fill(t *testing.T, n *node, values string) (string, bool) {
	t.Helper()
	for d := json.NewDecoder(strings.NewReader(values)); d.More(); {
		var v partialArg
		if d.Decode(&v) != nil || n.set(v) != nil {
			return "", false
		}
	}
	return n.encode(), !n.unfinished()
}

// Arguments that arrive in pieces are valid JSON, or refused.
func FuzzArguments(f *testing.F) {
	f.Add(`{"jsonPath":"$.l[0][0]['x']","numberValue":1} {"jsonPath":"$.t","stringValue":"a","willContinue":true}`)
	f.Add(`{"jsonPath":"$[\"\\u00e4\\\"\"]","nullValue":0} {"jsonPath":"$"}`)
	f.Fuzz(func(t *testing.T, values string) {
		var n node
		if got, ok := fill(t, &n, values); ok && !json.Valid([]byte(got)) {
			t.Fatalf("%s from %s", got, values)
		}
	})
}
