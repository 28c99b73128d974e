package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	jobsetwebhooks "sigs.k8s.io/jobset/pkg/webhooks"
	"sigs.k8s.io/yaml"

	configapi "github.com/kubeflow/trainer/v2/pkg/apis/config/v1alpha1"
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/kubeflow/trainer/v2/pkg/config"
	"github.com/kubeflow/trainer/v2/pkg/controller"
	trainerruntime "github.com/kubeflow/trainer/v2/pkg/runtime"
	runtimecore "github.com/kubeflow/trainer/v2/pkg/runtime/core"
	testingutil "github.com/kubeflow/trainer/v2/pkg/util/testing"
	"github.com/kubeflow/trainer/v2/pkg/webhooks"
)

const uid = "11111111-1111-1111-1111-111111111111"

// patchTime stands for the time at which a runtimePatch was written.
const patchTime = "2026-01-01T00:00:00Z"

func runtimeKind(group, version, kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: group, Version: version, Kind: kind}
}

// complete sets what a server sets in a new object.
func complete(object *unstructured.Unstructured) {
	if object.GetUID() == "" {
		object.SetUID(uid)
	}
	if created := object.GetCreationTimestamp(); created.IsZero() {
		object.SetCreationTimestamp(metav1.NewTime(time.Now().Truncate(time.Second)))
	}
}

// cluster has the controller, the webhooks, and the objects of a case.
type cluster struct {
	server     *server
	hooks      *hooks
	client     client.Client
	runtimes   map[string]trainerruntime.Runtime
	reconciler *controller.TrainJobReconciler
	begun      time.Time
}

func newCluster(server *server, gates map[string]bool) (*cluster, error) {
	ctx := context.Background()
	for _, gate := range []string{"trainJobStatus"} {
		name := strings.ToUpper(gate[:1]) + gate[1:]
		if err := feature.DefaultMutableFeatureGate.Set(fmt.Sprintf("%s=%v", name, gates[gate])); err != nil {
			return nil, err
		}
	}
	builder := testingutil.NewClientBuilder(configapi.AddToScheme).
		WithStatusSubresource(&trainer.TrainJob{}, &jobset.JobSet{}).
		WithInterceptorFuncs(interceptor.Funcs{Get: getWithKind})
	indexer := testingutil.AsIndex(builder)
	found := &cluster{server: server, client: builder.Build(), begun: time.Now()}
	_, settings, err := config.Load(found.client.Scheme(), "")
	if err != nil {
		return nil, err
	}
	found.runtimes, err = runtimecore.New(ctx, found.client, indexer, &settings)
	if err != nil {
		return nil, err
	}
	found.hooks = &hooks{client: found.client, paths: map[string]*admission.Webhook{}, mux: http.NewServeMux()}
	if _, err := webhooks.Setup(found.hooks, found.runtimes); err != nil {
		return nil, err
	}
	if err := jobsetwebhooks.Setup(found.hooks); err != nil {
		return nil, err
	}
	found.reconciler = controller.NewTrainJobReconciler(found.client, events.NewFakeRecorder(1000), found.runtimes)
	return found, nil
}

// getWithKind reads as the cache of a manager does: with apiVersion and kind.
func getWithKind(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	if err := c.Get(ctx, key, object, options...); err != nil {
		return err
	}
	kind, err := apiutil.GVKForObject(object, c.Scheme())
	if err == nil {
		object.GetObjectKind().SetGroupVersionKind(kind)
	}
	return err
}

// get is a stored object, or nil.
func (c *cluster) get(like *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	object, err := c.client.Scheme().New(like.GroupVersionKind())
	if err != nil {
		return nil, err
	}
	err = c.client.Get(context.Background(), client.ObjectKeyFromObject(like), object.(client.Object))
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return toUnstructured(object), nil
}

func (c *cluster) typed(object *unstructured.Unstructured) (client.Object, error) {
	out, err := c.client.Scheme().New(object.GroupVersionKind())
	if err != nil {
		return nil, err
	}
	return out.(client.Object), decodeInto(object, out)
}

// put stores an object with its status. One that has a status and no spec changes only the status of a stored object.
func (c *cluster) put(object *unstructured.Unstructured) error {
	ctx := context.Background()
	old, err := c.get(object)
	if err != nil {
		return err
	}
	_, hasSpec := object.Object["spec"]
	status, hasStatus := object.Object["status"]
	if typed, err := c.typed(object); err != nil {
		return err
	} else if old == nil {
		typed.SetResourceVersion("")
		err = c.client.Create(ctx, typed)
		if err != nil {
			return err
		}
	} else if hasSpec || !hasStatus {
		typed.SetResourceVersion(old.GetResourceVersion())
		if err := c.client.Update(ctx, typed); err != nil {
			return err
		}
	}
	if !hasStatus {
		return nil
	}
	stored, err := c.get(object)
	if err != nil {
		return err
	}
	stored.Object["status"] = status
	typed, err := c.typed(stored)
	if err != nil {
		return err
	}
	return c.client.Status().Update(ctx, typed)
}

// play applies the documents of a case one after the other, and returns what became of the last one that counts.
func play(server *server, documents []*unstructured.Unstructured, gates map[string]bool) (*answer, error) {
	cluster, err := newCluster(server, gates)
	if err != nil {
		return nil, err
	}
	var last, runtime *answer
	var job *unstructured.Unstructured
	var stored map[string]any
	for _, document := range documents {
		object := document.DeepCopy()
		kind := object.GetKind()
		switch {
		case kind == "OracleDelete":
			target, err := cluster.typed(&unstructured.Unstructured{Object: object.Object["target"].(map[string]any)})
			if err != nil {
				return nil, err
			}
			if err := cluster.client.Delete(context.Background(), target); err != nil {
				return nil, err
			}
		case strings.HasPrefix(object.GetAPIVersion(), trainer.GroupVersion.Group):
			found, err := cluster.apply(object)
			if err != nil {
				return nil, err
			}
			if kind != "TrainJob" {
				runtime = found
				continue
			}
			last = found
			if found.Admitted {
				job = object
				stored = cluster.render(found, object, stored)
			}
		default:
			if err := cluster.put(object); err != nil {
				return nil, err
			}
		}
		if job != nil && last.Admitted {
			last.Reconcile = cluster.reconcile(job)
		}
	}
	if last == nil {
		last = runtime
	}
	return last, nil
}

// apply creates or updates a runtime or a TrainJob.
func (c *cluster) apply(object *unstructured.Unstructured) (*answer, error) {
	if !c.server.resources[object.GetKind()].namespaced {
		object.SetNamespace("")
	} else if object.GetNamespace() == "" {
		object.SetNamespace("default")
	}
	old, err := c.get(object)
	if err != nil {
		return nil, err
	}
	out := &answer{Admitted: true, Objects: []map[string]any{}}
	if refused := c.server.admit(c.hooks, object, old); refused != nil {
		out.Admitted, out.Stage, out.Errors = false, refused.stage, refused.faults
		if refused.stage == "validating-webhook" {
			if errs := c.webhookFaults(object, old); len(errs) > 0 {
				out.Errors = errs
			}
		}
		return out, nil
	}
	if object.GetKind() == "TrainJob" {
		stored := object.DeepCopy()
		for _, name := range []string{"creationTimestamp", "generation", "resourceVersion", "managedFields"} {
			unstructured.RemoveNestedField(stored.Object, "metadata", name)
		}
		delete(stored.Object, "status")
		out.TrainJob = c.withoutNow(stored.Object, patchTime).(map[string]any)
		delete(object.Object, "status")
	}
	return out, c.put(object)
}

// webhookFaults are the errors of the validating webhook with their fields, of which its answer only has the words.
func (c *cluster) webhookFaults(object, old *unstructured.Unstructured) (out []fault) {
	defer func() {
		if reason := recover(); reason != nil {
			out = []fault{{Type: "panic", Detail: fmt.Sprint(reason)}}
		}
	}()
	ctx := context.Background()
	switch object.GetKind() {
	case "ClusterTrainingRuntime":
		var runtime trainer.ClusterTrainingRuntime
		if decodeInto(object, &runtime) != nil {
			return nil
		}
		_, err := (&webhooks.ClusterTrainingRuntimeValidator{}).ValidateCreate(ctx, &runtime)
		return faults(fieldErrors(err))
	case "TrainingRuntime":
		var runtime trainer.TrainingRuntime
		if decodeInto(object, &runtime) != nil {
			return nil
		}
		_, err := (&webhooks.TrainingRuntimeValidator{}).ValidateCreate(ctx, &runtime)
		return faults(fieldErrors(err))
	}
	var job trainer.TrainJob
	if err := decodeInto(object, &job); err != nil {
		return []fault{{Detail: err.Error()}}
	}
	key := trainerruntime.RuntimeRefToRuntimeRegistryKey(job.Spec.RuntimeRef)
	runtime, ok := c.runtimes[key]
	if !ok {
		return []fault{{Detail: "unsupported runtime: " + key}}
	}
	var before *trainer.TrainJob
	if old != nil {
		before = &trainer.TrainJob{}
		check(decodeInto(old, before))
	}
	_, errs := runtime.ValidateObjects(ctx, before, &job)
	return faults(errs)
}

// render records the objects of a stored TrainJob, and what JobSet's server would make of the JobSet. It returns this JobSet as
// it would be stored; if that is refused, the one before.
func (c *cluster) render(out *answer, object *unstructured.Unstructured, before map[string]any) map[string]any {
	var job trainer.TrainJob
	key := client.ObjectKeyFromObject(object)
	check(c.client.Get(context.Background(), key, &job))
	if job.Spec.ManagedBy != nil && *job.Spec.ManagedBy != "trainer.kubeflow.org/trainjob-controller" {
		return before
	}
	out.Objects, out.ObjectsError = c.newObjects(&job)
	for _, document := range out.Objects {
		if document["kind"] != "JobSet" {
			continue
		}
		stored, admitted := c.storedJobSet(document)
		out.JobSetAdmission, out.JobSetDefaulted = &verdict{admitted}, stored
		if stored != nil && before != nil {
			out.JobSetUpdate = &verdict{c.mayUpdate(before, stored)}
		}
		if stored != nil && (out.JobSetUpdate == nil || out.JobSetUpdate.Admitted) {
			before = stored
		}
	}
	out.Snapshot = c.snapshot(key)
	return before
}

var order = []string{"JobSet", "PodGroup", "ConfigMap", "Secret"}

func (c *cluster) newObjects(job *trainer.TrainJob) (out []map[string]any, reason string) {
	out = []map[string]any{}
	defer func() {
		if panicked := recover(); panicked != nil {
			out, reason = []map[string]any{}, fmt.Sprintf("panic: %v", panicked)
		}
	}()
	key := trainerruntime.RuntimeRefToRuntimeRegistryKey(job.Spec.RuntimeRef)
	objects, err := c.runtimes[key].NewObjects(context.Background(), job.DeepCopy())
	if err != nil {
		return out, pointer.ReplaceAllString(err.Error(), "0xPOINTER")
	}
	for _, each := range objects {
		out = append(out, withoutKeys(plain(each)).(map[string]any))
	}
	slices.SortStableFunc(out, func(a, b map[string]any) int { return strings.Compare(rank(a), rank(b)) })
	return out, ""
}

func rank(document map[string]any) string {
	object := unstructured.Unstructured{Object: document}
	return fmt.Sprint(slices.Index(order, object.GetKind()), object.GetName(), object.GetAPIVersion())
}

var (
	pointer    = regexp.MustCompile(`0x[0-9a-f]{6,}`)
	privateKey = "<base64 of a PEM EC PRIVATE KEY (P-521)>"
	publicKey  = "<base64 of an ecdsa-sha2-nistp521 authorized_keys line>"
)

// withoutKeys replaces the SSH keys, which are random.
func withoutKeys(value any) any {
	return mapped(value, func(text string) string {
		switch {
		case strings.HasPrefix(text, "LS0tLS1CRUdJTiBFQyBQUklWQVRFIEtFWS0tLS0t"):
			return privateKey
		case strings.HasPrefix(text, "ZWNkc2Etc2hhMi1uaXN0cDUyMS"):
			return publicKey
		}
		return text
	})
}

// withoutNow replaces the times of this run.
func (c *cluster) withoutNow(value any, by string) any {
	return mapped(value, func(text string) string {
		found, err := time.Parse(time.RFC3339, text)
		if err == nil && found.After(c.begun.Add(-time.Minute)) && found.Before(c.begun.Add(time.Hour)) {
			return by
		}
		return text
	})
}

func mapped(value any, change func(string) string) any {
	switch found := value.(type) {
	case map[string]any:
		for name := range found {
			found[name] = mapped(found[name], change)
		}
	case []any:
		for place := range found {
			found[place] = mapped(found[place], change)
		}
	case string:
		return change(found)
	}
	return value
}

// storedJobSet is a JobSet as the server stores it, nil if it is refused before its validating webhook; and whether it is admitted.
func (c *cluster) storedJobSet(document map[string]any) (map[string]any, bool) {
	object := toUnstructured(document)
	refused := c.server.admit(c.hooks, object, nil)
	if refused != nil {
		return nil, false
	}
	for _, name := range []string{"creationTimestamp", "generation", "uid"} {
		unstructured.RemoveNestedField(object.Object, "metadata", name)
	}
	delete(object.Object, "status")
	return object.Object, true
}

// mayUpdate is whether JobSet's server admits a changed JobSet.
func (c *cluster) mayUpdate(before, after map[string]any) bool {
	old, object := toUnstructured(before).DeepCopy(), toUnstructured(after).DeepCopy()
	for _, each := range []*unstructured.Unstructured{old, object} {
		each.SetResourceVersion("1")
		each.SetGeneration(1)
		complete(each)
	}
	return c.server.admit(c.hooks, object, old) == nil
}

func (c *cluster) snapshot(job client.ObjectKey) map[string]any {
	var stored corev1.ConfigMap
	key := client.ObjectKey{Namespace: job.Namespace, Name: job.Name + "-runtime-snapshot"}
	if c.client.Get(context.Background(), key, &stored) != nil {
		return nil
	}
	var runtime map[string]any
	check(yaml.Unmarshal([]byte(stored.Data["runtime"]), &runtime))
	metadata, _ := runtime["metadata"].(map[string]any)
	for _, name := range []string{"resourceVersion", "creationTimestamp", "generation", "managedFields", "uid"} {
		delete(metadata, name)
	}
	return map[string]any{"runtime": runtime}
}

// reconcile runs the controller once, and returns the status that it leaves.
func (c *cluster) reconcile(object *unstructured.Unstructured) map[string]any {
	key := client.ObjectKeyFromObject(object)
	func() {
		defer func() { _ = recover() }()
		_, _ = c.reconciler.Reconcile(context.Background(), ctrl.Request{NamespacedName: key})
	}()
	var job trainer.TrainJob
	check(c.client.Get(context.Background(), key, &job))
	return map[string]any{"status": c.withoutNow(plain(job.Status), "<now>")}
}

// readDocuments reads the documents of a file, and the feature gates of its OracleConfig.
func readDocuments(file string) ([]*unstructured.Unstructured, map[string]bool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, err
	}
	var out []*unstructured.Unstructured
	gates := map[string]bool{}
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		part, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return out, gates, nil
		}
		if err != nil {
			return nil, nil, err
		}
		converted, err := yaml.YAMLToJSON(part)
		if err != nil {
			return nil, nil, err
		}
		document := &unstructured.Unstructured{}
		if string(converted) == "null" {
			continue
		}
		if err := document.UnmarshalJSON(converted); err != nil {
			return nil, nil, err
		}
		if document.GetKind() != "OracleConfig" {
			out = append(out, document)
			continue
		}
		var given map[string]any
		check(json.Unmarshal(converted, &given))
		for name, value := range given {
			if on, ok := value.(bool); ok {
				gates[name] = on
			}
		}
	}
}
