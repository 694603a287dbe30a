package anthropic_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/turnpike-dev/turnpike/internal/model/modeltest"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/model/anthropic"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const (
	bedrockURL = "https://bedrock-runtime.eu-central-1.amazonaws.com"
	vertexURL  = "https://europe-west1-aiplatform.googleapis.com/v1/projects/my-project/locations/europe-west1"

	onBedrock   = "eu.anthropic.claude-haiku-4-5-20251001-v1:0"
	vertexModel = "claude-haiku-4-5@20251001"
)

var answered = []string{
	start, begin(0, `{"type":"text","text":""}`), delta(0, `{"type":"text_delta","text":"Hello."}`), end(0), done("end_turn"), stop,
}

// frames answers with Bedrock's stream: AWS messages, each with an Anthropic event in base64.
func frames(t *testing.T, w http.ResponseWriter, events []string, exception string) {
	w.Header().Set("Content-Type", "application/vnd.amazon.eventstream")
	send := func(kind, name, payload string) {
		err := eventstream.NewEncoder().Encode(w, eventstream.Message{
			Headers: eventstream.Headers{
				{Name: ":message-type", Value: eventstream.StringValue(kind)},
				{Name: ":" + kind + "-type", Value: eventstream.StringValue(name)},
			},
			Payload: []byte(payload),
		})
		if err != nil {
			t.Errorf("send an event: %v", err)
		}
	}
	for _, e := range events {
		send("event", "chunk", `{"bytes":"`+base64.StdEncoding.EncodeToString([]byte(e))+`"}`)
	}
	if exception != "" {
		send("exception", exception, `{"message":"no luck"}`)
	}
}

func inCloud(t *testing.T, c *modeltest.Cloud, base, name, secret string) (model.Response, error) {
	t.Helper()
	p := anthropic.New(anthropic.Config{Client: c.Client})
	return p.Generate(t.Context(), model.Request{Run: "r1", Call: 2, Model: name, BaseURL: base, APIKey: secret, Messages: []state.Message{state.UserText("hi")}}, nil)
}

func sum(body string) string {
	h := sha256.Sum256([]byte(body))
	return hex.EncodeToString(h[:])
}

func said(r model.Response) string {
	if len(r.Parts) != 1 {
		return fmt.Sprint(r.Parts)
	}
	return r.Parts[0].Text
}

func TestBedrockWithAKey(t *testing.T) {
	t.Parallel()
	c := modeltest.NewCloud(t, func(w http.ResponseWriter, _ *http.Request) { frames(t, w, answered, "") })
	resp, err := inCloud(t, c, bedrockURL, onBedrock, "bedrock-key")
	if err != nil || said(resp) != "Hello." {
		t.Fatalf("%q, %v", said(resp), err)
	}
	got := c.Last(t)
	if want := "/model/" + onBedrock + "/invoke-with-response-stream"; got.URL.Path != want || got.Host != "bedrock-runtime.eu-central-1.amazonaws.com" {
		t.Errorf("it was sent to %s%s, want %s", got.Host, got.URL.Path, want)
	}
	if got.Header.Get("Authorization") != "Bearer bedrock-key" || got.Header.Get("X-Api-Key") != "" || got.Header.Get("X-Client-Request-Id") != "r1/2" {
		t.Errorf("headers %v", got.Header)
	}
	var body map[string]any
	if err := json.Unmarshal([]byte(got.Body), &body); err != nil {
		t.Fatal(err)
	}
	if body["anthropic_version"] != "bedrock-2023-05-31" || body["model"] != nil || body["stream"] != nil || body["messages"] == nil {
		t.Errorf("body %s", got.Body)
	}
}

// A request signed with an identity's keys has the signature that AWS computes.
func TestBedrockSigns(t *testing.T) {
	t.Parallel()
	c := modeltest.NewCloud(t, func(w http.ResponseWriter, _ *http.Request) { frames(t, w, answered, "") })
	exported := `{"Version":1,"AccessKeyId":"AKIAEXAMPLE","SecretAccessKey":"not-shown","SessionToken":"session"}`
	if _, err := inCloud(t, c, bedrockURL, onBedrock, exported); err != nil {
		t.Fatal(err)
	}
	got := c.Last(t)
	at, err := time.Parse("20060102T150405Z", got.Header.Get("X-Amz-Date"))
	if err != nil {
		t.Fatal(err)
	}
	_, names, _ := strings.Cut(got.Header.Get("Authorization"), "SignedHeaders=")
	names, _, _ = strings.Cut(names, ",")
	again, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+got.Host+got.URL.RequestURI(), strings.NewReader(got.Body))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range strings.Split(names, ";") {
		if v := got.Header.Get(name); v != "" && name != "content-length" {
			again.Header.Set(name, v)
		}
	}
	keys := aws.Credentials{AccessKeyID: "AKIAEXAMPLE", SecretAccessKey: "not-shown", SessionToken: "session"}
	if err := v4.NewSigner().SignHTTP(t.Context(), keys, again, sum(got.Body), "bedrock", "eu-central-1", at); err != nil {
		t.Fatal(err)
	}
	if a, b := got.Header.Get("Authorization"), again.Header.Get("Authorization"); a != b || !strings.Contains(a, "/eu-central-1/bedrock/aws4_request") {
		t.Errorf("signature\n%s, want\n%s", a, b)
	}
	if got.Header.Get("X-Amz-Security-Token") != "session" || strings.Contains(got.Body, "not-shown") {
		t.Errorf("headers %v", got.Header)
	}
}

// Bedrock's newer endpoint uses Anthropic's own requests and streams. Requests go to the host of the agent, which may be
// an endpoint in a private network.
func TestBedrockMantle(t *testing.T) {
	t.Parallel()
	c := modeltest.NewCloud(t, events)
	for secret, want := range map[string]string{
		"bedrock-key": "Bearer bedrock-key",
		`{"AccessKeyId":"AKIAEXAMPLE","SecretAccessKey":"not-shown","SessionToken":"session"}`: "AWS4-HMAC-SHA256 Credential=AKIAEXAMPLE/",
	} {
		host := "bedrock-mantle.us-east-1.api.aws"
		if want != "Bearer bedrock-key" {
			host = "vpce-1." + strings.Replace(host, "api.aws", "vpce.amazonaws.com", 1)
		}
		resp, err := inCloud(t, c, "https://"+host+"/anthropic", "anthropic.claude-haiku-4-5", secret)
		if err != nil || said(resp) != "Hello." {
			t.Fatalf("%q, %v", said(resp), err)
		}
		got := c.Last(t)
		if got.Host != host || got.URL.Path != "/anthropic/v1/messages" || !strings.HasPrefix(got.Header.Get("Authorization"), want) || got.Header.Get("X-Api-Key") != "" {
			t.Errorf("%s, headers %v", got.URL, got.Header)
		}
	}
}

// events answers with Anthropic's stream.
func events(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	for _, line := range answered {
		var e struct{ Type string }
		_ = json.Unmarshal([]byte(line), &e)
		_, _ = fmt.Fprintf(w, "event: %s\ndata: %s\n\n", e.Type, line)
	}
}

func TestBedrockFails(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]model.Class{
		"throttlingException": model.RateLimited, "serviceUnavailableException": model.Overloaded, "modelStreamErrorException": model.Overloaded,
		"internalServerException": model.Overloaded, "modelTimeoutException": model.Timeout, "validationException": model.InvalidRequest,
	} {
		c := modeltest.NewCloud(t, func(w http.ResponseWriter, _ *http.Request) { frames(t, w, answered[:3], name) })
		_, err := inCloud(t, c, bedrockURL, onBedrock, "bedrock-key")
		if e, ok := errors.AsType[*model.Error](err); !ok || e.Class != want || e.Partial != "Hello." || !strings.Contains(e.Message, "no luck") {
			t.Errorf("%s: %v, partial %+v, want %s", name, err, e, want)
		}
	}
	for answer, want := range map[string]model.Class{
		`429 {"message":"Too many requests, please wait before trying again."}`:    model.RateLimited,
		`400 {"message":"Input is too long for requested model."}`:                 model.PromptTooLong,
		`403 {"message":"The security token included in the request is invalid."}`: model.Auth,
		`404 {"message":"bedrock-key: no such model"}`:                             model.InvalidRequest,
		`503 {"message":"The service is unavailable."}`:                            model.Overloaded,
	} {
		c := modeltest.NewCloud(t, func(w http.ResponseWriter, _ *http.Request) {
			var status int
			_, _ = fmt.Sscan(answer, &status)
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_, _ = w.Write([]byte(answer[4:]))
		})
		_, err := inCloud(t, c, bedrockURL, onBedrock, "bedrock-key")
		if e, ok := errors.AsType[*model.Error](err); !ok || e.Class != want || strings.Contains(e.Message, "bedrock-key") {
			t.Errorf("%s: %v, want %s", answer, err, want)
		}
	}
}

// The worker's environment does not provide credentials for an agent.
func TestBedrockIgnoresTheEnvironment(t *testing.T) {
	c := modeltest.NewCloud(t, func(w http.ResponseWriter, _ *http.Request) { frames(t, w, answered, "") })
	t.Setenv("AWS_ACCESS_KEY_ID", "of-the-worker")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "of-the-worker")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	if _, err := inCloud(t, c, bedrockURL, onBedrock, "bedrock-key"); err != nil || c.Last(t).Header.Get("Authorization") != "Bearer bedrock-key" {
		t.Errorf("%v, %v", err, c.Last(t).Header)
	}
	if _, err := inCloud(t, c, bedrockURL, onBedrock, "worker-identity"); err != nil || !strings.Contains(c.Last(t).Header.Get("Authorization"), "Credential=of-the-worker/") {
		t.Errorf("%v, %v", err, c.Last(t).Header)
	}
	t.Setenv("AWS_BEARER_TOKEN_BEDROCK", "token-of-the-worker")
	_, err := inCloud(t, c, bedrockURL, onBedrock, "bedrock-key")
	if e, ok := errors.AsType[*model.Error](err); !ok || e.Class != model.Auth || !strings.Contains(e.Message, "unset it") {
		t.Errorf("a variable replaces the key of an agent: %v", err)
	}
}

func TestVertex(t *testing.T) {
	t.Parallel()
	c := modeltest.NewCloud(t, events)
	account := c.ServiceAccount(t)
	p := anthropic.New(anthropic.Config{Client: c.Client})
	for range 2 {
		resp, err := p.Generate(t.Context(), model.Request{Model: vertexModel, BaseURL: vertexURL, APIKey: account, Messages: []state.Message{state.UserText("hi")}}, nil)
		if err != nil || said(resp) != "Hello." {
			t.Fatalf("%q, %v", said(resp), err)
		}
	}
	got := c.Last(t)
	if want := "/v1/projects/my-project/locations/europe-west1/publishers/anthropic/models/" + vertexModel + ":streamRawPredict"; got.URL.Path != want || got.Host != "europe-west1-aiplatform.googleapis.com" {
		t.Errorf("it was sent to %s%s, want %s", got.Host, got.URL.Path, want)
	}
	if got.Header.Get("Authorization") != "Bearer token-1" || got.Header.Get("X-Api-Key") != "" || c.Tokens() != 1 {
		t.Errorf("headers %v after %d tokens", got.Header, c.Tokens())
	}
	if !strings.Contains(got.Body, `"anthropic_version":"vertex-2023-10-16"`) || strings.Contains(got.Body, "model") {
		t.Errorf("body %s", got.Body)
	}
}

func TestVertexRefusesAnAccount(t *testing.T) {
	t.Parallel()
	c := modeltest.NewCloud(t, func(http.ResponseWriter, *http.Request) { t.Error("a model was called") })
	account := c.ServiceAccount(t)
	c.Deny = true
	for secret, want := range map[string]string{account: "The account is disabled.", "AIza-some-key": "key of a service account", `{"type":"external_account"}`: "key of a service account"} {
		_, err := inCloud(t, c, vertexURL, vertexModel, secret)
		if e, ok := errors.AsType[*model.Error](err); !ok || e.Class != model.Auth || !strings.Contains(e.Message, want) || strings.Contains(e.Message, "PRIVATE KEY") {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// A call ends with its context, even if the token server does not answer.
func TestVertexHangs(t *testing.T) {
	t.Parallel()
	c := modeltest.NewCloud(t, func(http.ResponseWriter, *http.Request) { t.Error("a model was called") })
	c.Hang = true
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	_, err := anthropic.New(anthropic.Config{Client: c.Client}).Generate(ctx, model.Request{
		Model: vertexModel, BaseURL: vertexURL, APIKey: c.ServiceAccount(t), Messages: []state.Message{state.UserText("hi")},
	}, nil)
	if e, ok := errors.AsType[*model.Error](err); !ok || e.Class != model.Cancelled {
		t.Errorf("%v, want cancelled", err)
	}
}

func TestAddressesOfClouds(t *testing.T) {
	t.Parallel()
	_, err := anthropic.New(anthropic.Config{}).Generate(t.Context(), model.Request{Model: vertexModel, BaseURL: "https://europe-west1-aiplatform.googleapis.com", APIKey: "k", Messages: []state.Message{state.UserText("hi")}}, nil)
	if e, ok := errors.AsType[*model.Error](err); !ok || e.Class != model.InvalidRequest || !strings.Contains(e.Message, "/v1/projects/PROJECT/locations/LOCATION") {
		t.Errorf("%v", err)
	}
}
