package openai

import (
	"context"
	"net/http"

	"github.com/openai/openai-go/v3/azure"
	"github.com/openai/openai-go/v3/option"

	"github.com/turnpike-dev/turnpike/internal/credential/cloudlogin"
	"github.com/turnpike-dev/turnpike/pkg/model"
)

// inCloud returns the options with the address of Azure, and a function that adds the credentials to a request's
// headers. The function does nothing if the options contain the credentials. The API v1 of Azure has OpenAI's paths; at
// an address with an api-version, the path has the model, which Azure calls a deployment. The error is a *model.Error.
func (p *Provider) inCloud(ctx context.Context, at model.CloudAddress, secret string) ([]option.RequestOption, func(http.Header), error) {
	token, err := p.logins.Azure(ctx, secret)
	if err != nil {
		return nil, nil, model.LoginFailed(ctx, provider, secret, cloudlogin.IsRefused(err), err)
	}
	switch {
	case at.Version != "" && token != nil:
		return []option.RequestOption{azure.WithEndpoint(at.Base, at.Version), azure.WithTokenCredential(token)}, func(http.Header) {}, nil
	case at.Version != "":
		return []option.RequestOption{azure.WithEndpoint(at.Base, at.Version), azure.WithAPIKey(secret)}, func(http.Header) {}, nil
	case token != nil:
		return []option.RequestOption{option.WithBaseURL(at.Base)}, bearer(token.Token), nil
	default:
		return []option.RequestOption{option.WithBaseURL(at.Base)}, func(h http.Header) { h.Set("Api-Key", secret) }, nil
	}
}
