package model_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/pkg/model"
)

func TestCloudAt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		provider, base string
		want           model.CloudAddress
		fault          string
	}{
		{"openai", "https://api.openai.com/v1", model.CloudAddress{}, ""},
		{"openai", "http://127.0.0.1:11434/v1", model.CloudAddress{}, ""},
		{"openai", "https://my.openai.azure.com/openai/v1/", model.CloudAddress{Cloud: model.Azure, Base: "https://my.openai.azure.com/openai/v1"}, ""},
		{"openai", "https://MY.openai.azure.com?api-version=2024-10-21", model.CloudAddress{Cloud: model.Azure, Base: "https://MY.openai.azure.com", Version: "2024-10-21"}, ""},
		{"openai", "https://my.openai.azure.com/openai?api-version=latest", model.CloudAddress{}, "/openai/v1, or"},
		{"openai", "https://my.openai.azure.com.attacker.example/openai/v1", model.CloudAddress{}, ""},
		{"openai", "http://my.openai.azure.com/openai/v1", model.CloudAddress{}, "https://"},
		{"openai", "http://my.openai.azure.com?api-version=2024-10-21", model.CloudAddress{}, "begins with http: write https://my.openai.azure.com?api-version=2024-10-21"},
		{"anthropic", "https://my.services.ai.azure.com/anthropic", model.CloudAddress{}, ""}, // Anthropic's own API and key
		{"anthropic", "https://bedrock-runtime.us-east-1.amazonaws.com/", model.CloudAddress{Cloud: model.Bedrock, Base: "https://bedrock-runtime.us-east-1.amazonaws.com", Region: "us-east-1"}, ""},
		{"anthropic", "https://bedrock-runtime-fips.us-gov-west-1.amazonaws.com", model.CloudAddress{Cloud: model.Bedrock, Base: "https://bedrock-runtime-fips.us-gov-west-1.amazonaws.com", Region: "us-gov-west-1"}, ""},
		{"anthropic", "https://vpce-0a.bedrock-runtime.eu-west-1.vpce.amazonaws.com", model.CloudAddress{Cloud: model.Bedrock, Base: "https://vpce-0a.bedrock-runtime.eu-west-1.vpce.amazonaws.com", Region: "eu-west-1"}, ""},
		{"anthropic", "https://bedrock-mantle.us-east-1.api.aws/anthropic", model.CloudAddress{Cloud: model.Bedrock, Base: "https://bedrock-mantle.us-east-1.api.aws/anthropic", Region: "us-east-1", Mantle: true}, ""},
		{"anthropic", "https://bedrock-mantle.us-east-1.api.aws", model.CloudAddress{}, "/anthropic"},
		{"anthropic", "https://bedrock-runtime.us-east-1.amazonaws.com/v1", model.CloudAddress{}, "has a path"},
		{"openai", "https://bedrock-runtime.us-east-1.amazonaws.com/openai/v1", model.CloudAddress{}, ""}, // OpenAI's own API, with a key of Bedrock
		{"anthropic", "https://aiplatform.googleapis.com/v1/projects/p-1/locations/global", model.CloudAddress{Cloud: model.Vertex, Base: "https://aiplatform.googleapis.com", Region: "global", Project: "p-1"}, ""},
		{"gemini", "https://aiplatform.eu.rep.googleapis.com/projects/example.com:p/locations/eu", model.CloudAddress{Cloud: model.Vertex, Base: "https://aiplatform.eu.rep.googleapis.com", Region: "eu", Project: "example.com:p"}, ""},
		{"gemini", "https://us-central1-aiplatform.googleapis.com/v1/projects/../locations/x", model.CloudAddress{}, "projects/PROJECT"},
		{"gemini", "https://ann:pw@us-central1-aiplatform.googleapis.com/v1/projects/p/locations/x", model.CloudAddress{}, "has a user"},
		{"gemini", "https://generativelanguage.googleapis.com/v1beta", model.CloudAddress{}, ""},
	} {
		got, err := model.CloudAt(c.provider, c.base)
		switch {
		case c.fault != "":
			if err == nil || !strings.Contains(err.Error(), c.fault) {
				t.Errorf("%s %s: %v, want %q", c.provider, c.base, err, c.fault)
			}
		case err != nil:
			t.Errorf("%s %s: %v", c.provider, c.base, err)
		default:
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s %s: -want +got\n%s", c.provider, c.base, diff)
			}
		}
	}
}

// A definition is refused for features that a cloud is known to lack.
func TestToolsOfClouds(t *testing.T) {
	t.Parallel()
	spec := model.BuiltinSpecs()["anthropic"]
	for base, want := range map[string][]string{
		"https://bedrock-runtime.us-east-1.amazonaws.com":                             {},
		"https://us-east5-aiplatform.googleapis.com/v1/projects/p/locations/us-east5": {model.WebSearch},
		"": {model.WebSearch, model.WebFetch, model.CodeExecution},
	} {
		got := []string{}
		for _, name := range model.ProviderTools() {
			if len(spec.CheckTool(model.Choice{Provider: "anthropic", Model: "claude-sonnet-4-5", BaseURL: base}, model.ProviderTool{Name: name}, model.Beside{}, false)) == 0 {
				got = append(got, name)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -want +got\n%s", base, diff)
		}
	}
}
