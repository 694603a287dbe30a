package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/api"
)

// The maximum cost of one request, message or run per process.
const (
	mostMemory = 50 << 20
	mostCPU    = time.Second
	hertz      = 100 // of the times in /proc/PID/stat
)

func (p *process) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd.Process.Pid
}

// memory returns a value of /proc/PID/status in bytes.
func (p *process) memory(name string) int64 {
	p.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid()))
	if err != nil {
		p.t.Fatal(err)
	}
	_, line, _ := strings.Cut(string(status), name+":")
	var kilobytes int64
	if _, err := fmt.Sscan(line, &kilobytes); err != nil {
		p.t.Fatalf("%s: %v", name, err)
	}
	return kilobytes << 10
}

// cpu returns the CPU time of the process.
func (p *process) cpu() time.Duration {
	p.t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid()))
	if err != nil {
		p.t.Fatal(err)
	}
	var used int64
	for _, f := range strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))[11:13] { // utime, stime
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			p.t.Fatal(err)
		}
		used += n
	}
	return time.Duration(used) * time.Second / hertz
}

// forgetPeak resets VmHWM.
func (p *process) forgetPeak() {
	p.t.Helper()
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.pid()), []byte("5"), 0); err != nil {
		p.t.Fatal(err)
	}
}

// doors are the entry points of a deployment, as a hostile caller uses them.
type doors struct {
	*deployment
	t     *testing.T
	spent *spent
}

// spent is the resource usage of the processes at the last measurement.
type spent struct {
	procs  map[string]*process
	memory map[string]int64
	cpu    map[string]time.Duration
	over   []string // the measurements above the limit since over was emptied
}

// begin starts a measurement.
func (s *spent) begin() {
	s.memory, s.cpu = map[string]int64{}, map[string]time.Duration{}
	for name, p := range s.procs {
		p.forgetPeak()
		s.memory[name], s.cpu[name] = p.memory("VmRSS"), p.cpu()
	}
}

// end ends a measurement, and records it if it is above the limit.
func (s *spent) end(t *testing.T, what string) {
	t.Helper()
	for name, p := range s.procs {
		grown, used := p.memory("VmHWM")-s.memory[name], p.cpu()-s.cpu[name]
		t.Logf("%s: %s, %d MiB, of the %s", what, used, grown>>20, name)
		if grown > mostMemory || used > mostCPU {
			s.over = append(s.over, fmt.Sprintf("%s: the %s computed for %s and grew by %d MiB", what, name, used, grown>>20))
		}
	}
}

// http sends a request and returns its status. The response must be short, and not a server error.
func (d doors) http(method, path, body string) int {
	d.t.Helper()
	req, err := http.NewRequestWithContext(d.t.Context(), method, d.url+path, strings.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		d.t.Errorf("no answer: %v", err)
		return 0
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode >= http.StatusInternalServerError || len(answer) > 64<<10 && resp.StatusCode >= http.StatusBadRequest {
		d.t.Errorf("status %d with %d bytes, %v: %.200s", resp.StatusCode, len(answer), err, answer)
	}
	d.t.Logf("%d %.160s", resp.StatusCode, answer)
	return resp.StatusCode
}

func (d doors) refused(method, path, body string) {
	d.t.Helper()
	if status := d.http(method, path, body); status < http.StatusBadRequest {
		d.t.Errorf("status %d, want a refusal", status)
	}
}

// run submits a run, and returns it when it has ended or waits.
func (d doors) run(agent, input string, schema string) api.Run {
	d.t.Helper()
	req := api.SubmitRequest{Agent: agent, Input: api.Text(input)}
	if schema != "" {
		req.OutputSchema = json.RawMessage(schema)
	}
	run, err := d.client.Submit(d.t.Context(), req, "")
	if err != nil {
		d.t.Errorf("submit: %.300v", err)
		return run
	}
	return d.settled(run.ID)
}

func (d doors) settled(id string) (run api.Run) {
	d.t.Helper()
	eventually(d.t, "the run ends or waits", func() (err error) {
		if run, err = d.client.Get(d.t.Context(), id); err == nil && (run.Status == "queued" || run.Status == "running") {
			err = fmt.Errorf("it is %s", run.Status)
		}
		return err
	})
	d.t.Logf("%s %.160v", run.Status, run.Error)
	return run
}

// agent saves a definition with a scripted model. That is one request; its run is another.
func (d doors) agent(name, responses, tools string) {
	d.t.Helper()
	definition := fmt.Sprintf(`{"name":%q,"model":{"provider":"scripted","responses":[%s]},"tools":[%s]}`, name, responses, tools)
	d.spent.begin()
	if _, err := d.client.PutAgent(d.t.Context(), name, []byte(definition)); err != nil {
		d.t.Errorf("agent %s: %.300v", name, err)
	}
	d.spent.end(d.t, "the definition")
	d.spent.begin()
}

// calls returns a model response with n calls, and one that ends the run.
func calls(n int, tool, arguments string) string {
	quoted, _ := json.Marshal(json.RawMessage(arguments))
	call := fmt.Sprintf(`{"name":%q,"arguments":%s}`, tool, quoted)
	return `{"tool_calls":[` + listOf(call, n) + `]},{"text":"done"}`
}

func listOf(s string, n int) string { return strings.TrimSuffix(strings.Repeat(s+",", n), ",") }

func nested(open, inner, end string, n int) string {
	return strings.Repeat(open, n) + inner + strings.Repeat(end, n)
}

// TestNothingCostsMuch sends hostile requests through each entry point: inputs that have cost seconds or
// gigabytes, or may do so. Each is answered, costs no process more than a second of CPU time or 50 MiB, and a
// healthy run completes afterwards.
func TestNothingCostsMuch(t *testing.T) {
	s := newDeployment(t, 1)
	procs := map[string]*process{"gateway": s.gateway, "worker": s.workers[0]}
	d := doors{s, t, &spent{procs: procs}}
	d.agent("healthy", `{"text":"well"}`, "")
	d.run("healthy", "x", "") // one-time costs are paid now
	for name, send := range hostile() {
		t.Run(name, func(t *testing.T) {
			d := doors{s, t, &spent{procs: procs}}
			for range 3 { // garbage collection adds noise: a real excess repeats each time
				d.spent.over = nil
				d.spent.begin()
				send(d)
				if run := d.run("healthy", "x", ""); run.Status != "completed" {
					t.Errorf("a healthy run afterwards is %s", run.Status)
				}
				if d.spent.end(t, "all of it"); len(d.spent.over) == 0 {
					return
				}
			}
			t.Error(strings.Join(d.spent.over, "; "))
		})
	}
}

// hostile is the corpus, by entry point and input.
func hostile() map[string]func(doors) {
	const head = `{"name":"h","model":{"provider":"scripted","responses":[{"text":"x"}]},`
	key := strings.Repeat("k", 98)
	var rules, patterns, aliases, levels, unique, doubled, members strings.Builder
	aliases.WriteString("a0: &a0 [x,x,x,x,x,x,x,x,x]\n")
	for i := range 9 {
		fmt.Fprintf(&aliases, "a%d: &a%d [*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d]\n", i+1, i+1, i, i, i, i, i, i, i, i, i)
	}
	for i := range 8000 {
		fmt.Fprintf(&rules, `,{"name":"t%d","approval":"args.x > %d"}`, i, i)
	}
	for i := range 3000 {
		fmt.Fprintf(&patterns, `,"p%d":{"pattern":"(a?){900}%d"}`, i, i)
	}
	for i := range 48 {
		fmt.Fprintf(&levels, `"l%d":{"anyOf":[{"$ref":"#/$defs/l%d"},{"$ref":"#/$defs/l%d"}]},`, i, i+1, i+1)
	}
	for i := range 60 {
		for j := range 60 - i {
			fmt.Fprintf(&unique, `,["%s","%s","%s"]`, strings.Repeat("a", i), strings.Repeat("a", j), strings.Repeat("a", 60-i-j))
		}
	}
	for i := range 30_000 {
		fmt.Fprintf(&doubled, `"a":%d,`, i%9)
		fmt.Fprintf(&members, `,"k%d":"v"`, i)
	}
	paths := `{"$ref":"#/$defs/l0","$defs":{` + levels.String() + `"l48":{"type":"string"}}}`
	text := `"` + strings.Repeat("a", 200<<10) + `"`
	submit := func(rest string) string { return `{"agent":"healthy",` + rest + `}` }
	bodies := map[string]string{
		"deep keys":     head + `"metadata":` + nested(`{"`+key+`":`, "1", "}", 9990) + "}",
		"deep lists":    nested("[", "", "]", 500_000),
		"deep YAML":     "a: " + nested("[", "", "]", 9000),
		"wide YAML":     "a: [" + strings.Repeat("a,", 500_000) + "]",
		"aliases":       aliases.String(),
		"doubled keys":  head + doubled.String() + `"b":1}`,
		"a long key":    head + `"` + strings.Repeat("k", 900_000) + `":1}`,
		"rules":         head + `"tools":[` + rules.String()[1:] + "]}",
		"patterns":      head + `"tools":[{"name":"t","schema":{"properties":{` + patterns.String()[1:] + `}}}]}`,
		"schema levels": head + `"tools":[{"name":"t","schema":{"properties":{"a":` + nested(`{"not":`, `{"description":"`+strings.Repeat("d", 900_000)+`"}`, "}", 190) + `}}}]}`,
		"a huge number": head + `"limits":{"max_turns":1e999999999}}`,
		"no UTF-8":      head + `"instructions":"` + strings.Repeat("\xff\xfe", 400_000) + `"`,
	}
	inputs := map[string]string{
		"deep":            submit(`"input":` + nested("[", "", "]", 400_000)),
		"a huge number":   submit(`"input":"x","confidence":1e` + strings.Repeat("9", 500_000)),
		"many messages":   submit(`"input":[` + listOf(`{"role":"user","parts":[]}`, 35_000) + `]`),
		"much metadata":   submit(`"input":"x","metadata":{` + members.String()[1:] + `}`),
		"a long metadata": submit(`"input":"x","metadata":{"` + strings.Repeat("k", 900_000) + `":"v"}`),
		"deep schema":     submit(`"input":"x","output_schema":` + nested(`{"not":`, "{}", "}", 100_000)),
		"schema places":   submit(`"input":"x","output_schema":{"` + strings.Repeat("k", 500_000) + `":{"properties":{` + listOf(`"a":{}`, 5000) + `}}}`),
		"schema patterns": submit(`"input":"x","output_schema":{"properties":{` + patterns.String()[1:] + `}}`),
		"no UTF-8":        submit(`"input":"` + strings.Repeat("\xff", 900_000) + `","x":1`),
		"nothing":         strings.Repeat("\x00", 1<<20),
	}
	all := map[string]func(doors){}
	for name, body := range bodies {
		all["definition/"+name] = func(d doors) { d.refused("PUT", "/v1/agents/h", body) }
		quoted, _ := json.Marshal(body)
		all["draft/"+name] = func(d doors) { d.refused("POST", "/v1/drafts", `{"input":"x","definition":`+string(quoted)+`}`) }
	}
	for name, body := range inputs {
		all["run/"+name] = func(d doors) { d.refused("POST", "/v1/runs", body) }
		all["batch/"+name] = func(d doors) { d.refused("POST", "/v1/runs:batch", `{"runs":[`+body+`]}`) }
		all["message/"+name] = func(d doors) {
			if err := d.nats.Publish(d.prefix()+".submit.healthy", []byte(body)); err != nil {
				d.t.Error(err)
			}
			if err := d.nats.Publish(d.prefix()+".abort.nobody", []byte(body)); err != nil {
				d.t.Error(err)
			}
		}
	}
	for name, query := range map[string]string{
		"metadata": strings.Repeat("metadata.a=b&", 4000), "status": strings.Repeat("status=queued,", 4000), "limit": "limit=1e999999", "cursor": "cursor=" + strings.Repeat("z", 50_000),
		"long names": "metadata." + strings.Repeat("k", 50_000) + "=v", "text": "q=" + url.QueryEscape(strings.Repeat("(a?)", 10_000)), "times": "created_after=" + strings.Repeat("9", 50_000),
	} {
		all["filter/"+name] = func(d doors) { d.http("GET", "/v1/runs?"+query, "") }
	}
	all["events/a far place"] = func(d doors) {
		d.refused("GET", "/v1/runs/nobody/events?last_event_id="+strings.Repeat("9", 50_000), "")
	}
	for name, c := range map[string]struct{ schema, arguments string }{
		"paths":         {`{"properties":{"a":{"$ref":"#/$defs/l0"}},` + paths[len(`{"$ref":"#/$defs/l0",`):], `{"a":1}`},
		"a pattern":     {`{"properties":{"a":{"pattern":"(a?){1000}x"}}}`, `{"a":` + text + `}`},
		"equal items":   {`{"properties":{"a":{"uniqueItems":true}}}`, `{"a":[` + unique.String()[1:] + `]}`},
		"names":         {`{"anyOf":[` + listOf(`{"additionalProperties":false}`, 4000) + `]}`, `{` + text + `:1}`},
		"deep levels":   {`{"properties":{"a":{"$ref":"#"},"b":{"type":"integer"}}}`, nested(`{"a":`, `{"b":`+text+`}`, "}", 180)},
		"deep":          {`{"properties":{"a":{"type":"string"}}}`, nested(`{"a":`, "1", "}", 8000)},
		"a huge number": {`{"properties":{"a":{"multipleOf":1e-300}}}`, `{"a":[` + listOf("1.7e308", 20_000) + `]}`},
	} {
		shallow := !strings.HasPrefix(name, "deep")
		tool := `{"name":"t","kind":"client","approval":"always","schema":` + c.schema + `}`
		if shallow { // a definition cannot be as deep, but an approver's edit may be
			all["arguments/"+name] = func(d doors) {
				d.agent("arguments", calls(1, "t", c.arguments), tool)
				d.run("arguments", "x", "")
			}
			all["calls/"+name] = func(d doors) {
				n := max(2, min(100, 500_000/len(c.arguments)))
				d.agent("calls", calls(n, "t", c.arguments), tool)
				d.run("calls", "x", "")
			}
		}
		all["edited/"+name] = func(d doors) {
			d.agent("edited", calls(1, "t", `{}`), tool)
			run := d.run("edited", "x", "")
			if run.Waiting == nil || len(run.Waiting.Calls) == 0 {
				d.t.Errorf("the run does not wait for approval: %+v", run)
				return
			}
			d.http("POST", "/v1/runs/"+run.ID+"/signals", fmt.Sprintf(`{"approvals":[{"call_id":%q,"decision":"approve","arguments":%s}]}`, run.Waiting.Calls[0].ID, c.arguments))
			d.settled(run.ID)
		}
	}
	for name, result := range map[string]string{"deep": nested("[", "", "]", 400_000), "no UTF-8": strings.Repeat("\xff", 900_000), "large": strings.Repeat("x", 900_000), "escapes": strings.Repeat("\x1b]52;c;", 100_000)} {
		all["result/"+name] = func(d doors) {
			d.agent("result", calls(1, "t", `{}`), `{"name":"t","kind":"client","schema":{"type":"object"}}`)
			run := d.run("result", "x", "")
			if run.Waiting == nil || len(run.Waiting.Calls) == 0 {
				d.t.Errorf("the run does not wait for a result: %+v", run)
				return
			}
			quoted, _ := json.Marshal(result)
			d.http("POST", "/v1/runs/"+run.ID+"/signals", fmt.Sprintf(`{"tool_results":[{"call_id":%q,"content":%s}]}`, run.Waiting.Calls[0].ID, quoted))
			d.settled(run.ID)
		}
	}
	for name, rule := range map[string]string{
		"pattern": `args.a.matches('(a?){1000}x')`, "loops": `args.l.all(x, args.l.all(y, args.l.all(z, x + y + z > 0)))`, "texts": `args.l.map(x, args.a + args.a).size() > 1`,
	} {
		quoted, _ := json.Marshal(rule)
		all["rule/"+name] = func(d doors) {
			d.agent("rule", calls(1, "t", `{"a":`+text+`,"l":[`+listOf("1", 1000)+`]}`), `{"name":"t","kind":"client","schema":{"type":"object"},"approval":`+string(quoted)+`}`)
			d.run("rule", "x", "")
		}
	}
	for name, c := range map[string]struct{ schema, answer string }{
		"paths":       {paths, "1"},
		"a pattern":   {`{"pattern":"(a?){1000}x"}`, text},
		"equal items": {`{"uniqueItems":true}`, `[` + unique.String()[1:] + `]`},
		"deep":        {`{}`, nested("[", "", "]", 400_000)},
		"large":       {`{"type":"integer"}`, `"` + strings.Repeat("x", 900_000) + `"`},
	} {
		quoted, _ := json.Marshal(c.answer)
		all["answer/"+name] = func(d doors) {
			d.spent.begin()
			definition := `{"name":"answer","loop":{"type":"single_call"},"model":{"provider":"scripted","responses":[{"text":` + string(quoted) + `}]}}`
			if _, err := d.client.PutAgent(d.t.Context(), "answer", []byte(definition)); err != nil {
				d.t.Errorf("agent: %.300v", err)
				return
			}
			d.run("answer", "x", c.schema)
		}
	}
	return all
}
