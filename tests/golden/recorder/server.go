package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/controller-runtime/pkg/webhook/conversion"
	"sigs.k8s.io/yaml"
)

// server is what an API server knows of custom resources.
type server struct {
	resources map[string]*customResource
}

// customResource is a kind with its CRD.
type customResource struct {
	namespaced bool
	schema     *structuralschema.Structural
	strategy   strategy
}

type strategy interface {
	PrepareForCreate(context.Context, runtime.Object)
	PrepareForUpdate(ctx context.Context, object, old runtime.Object)
	Validate(context.Context, runtime.Object) field.ErrorList
	ValidateUpdate(ctx context.Context, object, old runtime.Object) field.ErrorList
}

func newServer(patterns []string) (*server, error) {
	found := &server{resources: map[string]*customResource{}}
	for _, pattern := range patterns {
		files, err := filepath.Glob(pattern)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			if err := found.install(file); err != nil {
				return nil, err
			}
		}
	}
	return found, nil
}

func (s *server) install(file string) error {
	var crd apiextensionsv1.CustomResourceDefinition
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := yaml.Unmarshal(text, &crd); err != nil {
		return err
	}
	for _, version := range crd.Spec.Versions {
		var internal apiextensions.CustomResourceValidation
		err := apiextensionsv1.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(version.Schema, &internal, nil)
		if err != nil {
			return err
		}
		schema, err := structuralschema.NewStructural(internal.OpenAPIV3Schema)
		if err != nil {
			return err
		}
		validator, _, err := validation.NewSchemaValidator(internal.OpenAPIV3Schema)
		if err != nil {
			return err
		}
		var status *apiextensions.CustomResourceSubresourceStatus
		if version.Subresources != nil && version.Subresources.Status != nil {
			status = &apiextensions.CustomResourceSubresourceStatus{}
		}
		kind := runtimeKind(crd.Spec.Group, version.Name, crd.Spec.Names.Kind)
		namespaced := crd.Spec.Scope == apiextensionsv1.NamespaceScoped
		s.resources[kind.Kind] = &customResource{
			namespaced: namespaced,
			schema:     schema,
			strategy:   customresource.NewStrategy(nil, namespaced, kind, validator, nil, schema, status, nil, nil),
		}
	}
	return nil
}

// decode drops what the schema has not, and sets defaults.
func (r *customResource) decode(object *unstructured.Unstructured) error {
	kind, version := object.GetKind(), object.GetAPIVersion()
	meta, found, err := objectmeta.GetObjectMeta(object.Object, false)
	if err != nil {
		return err
	}
	pruning.Prune(object.Object, r.schema, true)
	defaulting.PruneNonNullableNullsWithoutDefaults(object.Object, r.schema)
	if err := objectmeta.Coerce(nil, object.Object, r.schema, false, false); err != nil {
		return err
	}
	object.SetKind(kind)
	object.SetAPIVersion(version)
	if found {
		if err := objectmeta.SetObjectMeta(object.Object, meta); err != nil {
			return err
		}
	}
	defaulting.Default(object.Object, r.schema)
	return nil
}

// rejection is the step that refuses an object, and why.
type rejection struct {
	stage  string
	faults []fault
}

func rejected(stage string, detail string) *rejection {
	return &rejection{stage, []fault{{Detail: detail}}}
}

// admit changes a new object, or a new version of `old`, as the server stores it; or returns why it refuses the object.
func (s *server) admit(hooks *hooks, object, old *unstructured.Unstructured) *rejection {
	kind, ctx := object.GetKind(), context.Background()
	kindOf := s.resources[kind]
	if err := kindOf.decode(object); err != nil {
		return rejected("decode", err.Error())
	}
	if hook := hooks.find("mutate", kind); hook != nil {
		response := hook.Handle(ctx, request(object, old))
		if !response.Allowed {
			return rejected("mutating-webhook", message(response))
		}
		check(applyPatches(object, response))
		if err := kindOf.decode(object); err != nil {
			return rejected("mutating-webhook", err.Error())
		}
	}
	var errs field.ErrorList
	if old == nil {
		kindOf.strategy.PrepareForCreate(ctx, object)
		complete(object)
		errs = kindOf.strategy.Validate(ctx, object)
	} else {
		object.SetUID(old.GetUID())
		object.SetCreationTimestamp(old.GetCreationTimestamp())
		object.SetResourceVersion(old.GetResourceVersion())
		object.SetGeneration(old.GetGeneration())
		kindOf.strategy.PrepareForUpdate(ctx, object, old)
		errs = kindOf.strategy.ValidateUpdate(ctx, object, old)
	}
	if len(errs) > 0 {
		return &rejection{"schema", faults(errs)}
	}
	exempt := object.GetLabels()["trainer.kubeflow.org/webhook-validation"] == "disabled" && strings.HasSuffix(kind, "TrainingRuntime")
	if hook := hooks.find("validate", kind); hook != nil && !exempt {
		if response := hook.Handle(ctx, request(object, old)); !response.Allowed {
			return rejected("validating-webhook", message(response))
		}
	}
	return nil
}

func request(object, old *unstructured.Unstructured) admission.Request {
	out := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		UID: "1", Operation: admissionv1.Create, Name: object.GetName(), Namespace: object.GetNamespace(),
		Object: runtime.RawExtension{Raw: encode(object.Object)},
	}}
	if old != nil {
		out.Operation = admissionv1.Update
		out.OldObject = runtime.RawExtension{Raw: encode(old.Object)}
	}
	return out
}

func message(response admission.Response) string {
	if response.Result.Message != "" {
		return response.Result.Message
	}
	return string(response.Result.Reason)
}

func applyPatches(object *unstructured.Unstructured, response admission.Response) error {
	if len(response.Patches) == 0 {
		return nil
	}
	patch, err := jsonpatch.DecodePatch(encode(response.Patches))
	if err != nil {
		return err
	}
	changed, err := patch.Apply(encode(object.Object))
	if err != nil {
		return err
	}
	object.Object = nil
	return object.UnmarshalJSON(changed)
}

// faults are the errors in a fixed order: that of the webhooks is random.
func faults(errs field.ErrorList) []fault {
	var out []fault
	for _, each := range errs {
		out = append(out, fault{each.Field, string(each.Type), each.Detail})
	}
	slices.SortStableFunc(out, func(a, b fault) int {
		return strings.Compare(a.Field+"\x00"+a.Type+"\x00"+a.Detail, b.Field+"\x00"+b.Type+"\x00"+b.Detail)
	})
	return out
}

// fieldErrors are those in an aggregate.
func fieldErrors(err error) field.ErrorList {
	var aggregate interface{ Errors() []error }
	var out field.ErrorList
	if !errors.As(err, &aggregate) {
		return nil
	}
	for _, each := range aggregate.Errors() {
		var found *field.Error
		if errors.As(each, &found) {
			out = append(out, found)
		}
	}
	return out
}

// hooks are the webhooks that the controllers register, by their paths. It is the manager and the webhook server in one that
// they register them at.
type hooks struct {
	manager.Manager
	webhook.Server
	client client.Client
	paths  map[string]*admission.Webhook
	mux    *http.ServeMux
}

func (h *hooks) find(action, kind string) *admission.Webhook {
	for path, hook := range h.paths {
		if strings.HasPrefix(path, "/"+action+"-") && strings.HasSuffix(path, "-"+strings.ToLower(kind)) {
			return hook
		}
	}
	return nil
}

func (h *hooks) Register(path string, handler http.Handler) {
	if hook, ok := handler.(*admission.Webhook); ok {
		h.paths[path] = hook
	}
}

func (h *hooks) GetWebhookServer() webhook.Server          { return h }
func (h *hooks) GetClient() client.Client                  { return h.client }
func (h *hooks) GetAPIReader() client.Reader               { return h.client }
func (h *hooks) GetScheme() *runtime.Scheme                { return h.client.Scheme() }
func (h *hooks) GetConfig() *rest.Config                   { return &rest.Config{} }
func (h *hooks) GetConverterRegistry() conversion.Registry { return conversion.NewRegistry() }
func (h *hooks) GetControllerOptions() config.Controller   { return config.Controller{} }
func (h *hooks) WebhookMux() *http.ServeMux                { return h.mux }
func (h *hooks) NeedLeaderElection() bool                  { return false }
func (h *hooks) Start(context.Context) error               { return nil }
func (h *hooks) StartedChecker() healthz.Checker           { return healthz.Ping }

func toUnstructured(object any) *unstructured.Unstructured {
	out := &unstructured.Unstructured{}
	check(out.UnmarshalJSON(encode(object)))
	return out
}

func decodeInto(object *unstructured.Unstructured, into any) error {
	return json.Unmarshal(encode(object.Object), into)
}
