package cloudlogin

import (
	"context"
	"errors"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
)

// azureScope is that of tokens for the models of Azure.
const azureScope = "https://cognitiveservices.azure.com/.default"

// AzureToken is an access token for the models of Azure. As a credential of Azure's SDK it gives itself.
type AzureToken azcore.AccessToken

// GetToken implements azcore.TokenCredential.
func (t *AzureToken) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken(*t), nil
}

// Azure returns an access token for calls of Azure OpenAI, or nil if the value of the secret is an API key, which
// needs no token. Otherwise the value is the output of "az ad sp create-for-rbac", or WorkerIdentity. The error is a
// *Error, or that of ctx.
func (l *Logins) Azure(ctx context.Context, value string) (*AzureToken, error) {
	var principal struct{ AppID, Password, Tenant string } // names match without regard to case
	is, err := object(value, &principal)
	if value != WorkerIdentity && !is {
		return nil, nil //nolint:nilnil // a key needs none
	}
	if is && (err != nil || principal.AppID == "" || principal.Password == "" || principal.Tenant == "") {
		return nil, refused(`the secret for Azure OpenAI is not valid: set it to an API key of Azure OpenAI, to {"appId": …, "password": …, "tenant": …}, or to %s`, WorkerIdentity)
	}
	credential, err := identity(l, "azure", value, func() (made azcore.TokenCredential, err error) {
		options := azcore.ClientOptions{Retry: policy.RetryOptions{MaxRetries: -1}} // the worker retries the model call
		if is {
			options.Transport = l.client
			return azidentity.NewClientSecretCredential(principal.Tenant, principal.AppID, principal.Password,
				&azidentity.ClientSecretCredentialOptions{ClientOptions: options, DisableInstanceDiscovery: true})
		}
		return azidentity.NewDefaultAzureCredential(&azidentity.DefaultAzureCredentialOptions{ClientOptions: options})
	})
	remedy := "check appId, password and tenant of the secret"
	if value == WorkerIdentity {
		remedy = "check the managed identity or the AZURE_* variables of the worker"
	}
	if err != nil {
		return nil, refused("the Azure identity could not be set up: %s", remedy)
	}
	token, err := within(ctx, func() (azcore.AccessToken, error) {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		return credential.GetToken(bounded, policy.TokenRequestOptions{Scopes: []string{azureScope}})
	})
	switch denied, is := errors.AsType[*azidentity.AuthenticationFailedError](err); {
	case err == nil:
		return (*AzureToken)(&token), nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case is && denied.RawResponse != nil && refuses(denied.RawResponse.StatusCode):
		return nil, refused("Azure refused the identity (HTTP %d): %s", denied.RawResponse.StatusCode, remedy)
	default:
		return nil, &Error{Text: "Azure issued no access token: retry, and check the status of Azure"}
	}
}
