package scaler_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/outlane/outlane/internal/scaler"
)

const ceiling = time.Minute

// keda has the messages of KEDA's contract, made by the protobuf library from the numbers and types that the contract has.
var keda = func() protoreflect.FileDescriptor {
	text := func(s string) *string { return &s }
	one, many := descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL, descriptorpb.FieldDescriptorProto_LABEL_REPEATED
	field := func(name string, number int32, kind descriptorpb.FieldDescriptorProto_Type, label descriptorpb.FieldDescriptorProto_Label, of string) *descriptorpb.FieldDescriptorProto {
		f := &descriptorpb.FieldDescriptorProto{Name: text(name), Number: &number, Type: &kind, Label: &label, JsonName: text(name)}
		if of != "" {
			f.TypeName = text(".externalscaler." + of)
		}
		return f
	}
	const (
		str    = descriptorpb.FieldDescriptorProto_TYPE_STRING
		flag   = descriptorpb.FieldDescriptorProto_TYPE_BOOL
		whole  = descriptorpb.FieldDescriptorProto_TYPE_INT64
		double = descriptorpb.FieldDescriptorProto_TYPE_DOUBLE
		msg    = descriptorpb.FieldDescriptorProto_TYPE_MESSAGE
	)
	entry := true
	file := &descriptorpb.FileDescriptorProto{Name: text("externalscaler.proto"), Package: text("externalscaler"), Syntax: text("proto3"),
		MessageType: []*descriptorpb.DescriptorProto{
			{Name: text("ScaledObjectRef"), Field: []*descriptorpb.FieldDescriptorProto{
				field("name", 1, str, one, ""), field("namespace", 2, str, one, ""), field("scalerMetadata", 3, msg, many, "ScaledObjectRef.ScalerMetadataEntry")},
				NestedType: []*descriptorpb.DescriptorProto{{Name: text("ScalerMetadataEntry"), Options: &descriptorpb.MessageOptions{MapEntry: &entry},
					Field: []*descriptorpb.FieldDescriptorProto{field("key", 1, str, one, ""), field("value", 2, str, one, "")}}}},
			{Name: text("IsActiveResponse"), Field: []*descriptorpb.FieldDescriptorProto{field("result", 1, flag, one, "")}},
			{Name: text("MetricSpec"), Field: []*descriptorpb.FieldDescriptorProto{
				field("metricName", 1, str, one, ""), field("targetSize", 2, whole, one, ""), field("targetSizeFloat", 3, double, one, "")}},
			{Name: text("GetMetricSpecResponse"), Field: []*descriptorpb.FieldDescriptorProto{field("metricSpecs", 1, msg, many, "MetricSpec")}},
			{Name: text("GetMetricsRequest"), Field: []*descriptorpb.FieldDescriptorProto{
				field("scaledObjectRef", 1, msg, one, "ScaledObjectRef"), field("metricName", 2, str, one, "")}},
			{Name: text("MetricValue"), Field: []*descriptorpb.FieldDescriptorProto{
				field("metricName", 1, str, one, ""), field("metricValue", 2, whole, one, ""), field("metricValueFloat", 3, double, one, "")}},
			{Name: text("GetMetricsResponse"), Field: []*descriptorpb.FieldDescriptorProto{field("metricValues", 1, msg, many, "MetricValue")}},
		}}
	d, err := protodesc.NewFile(file, nil)
	if err != nil {
		panic(err)
	}
	return d
}()

func message(name string) *dynamicpb.Message {
	return dynamicpb.NewMessage(keda.Messages().ByName(protoreflect.Name(name)))
}

func get(m protoreflect.Message, name string) protoreflect.Value {
	return m.Get(m.Descriptor().Fields().ByName(protoreflect.Name(name)))
}

func set(m protoreflect.Message, name string, v any) {
	m.Set(m.Descriptor().Fields().ByName(protoreflect.Name(name)), protoreflect.ValueOf(v))
}

// ref is the question of a ScaledObject.
func ref(metadata map[string]string) *dynamicpb.Message {
	m := message("ScaledObjectRef")
	set(m, "name", "pool")
	set(m, "namespace", "ns")
	for key, value := range metadata {
		m.Mutable(m.Descriptor().Fields().ByName("scalerMetadata")).Map().Set(protoreflect.ValueOfString(key).MapKey(), protoreflect.ValueOfString(value))
	}
	return m
}

// database is one that says what it is told to.
type database struct {
	mu     sync.Mutex
	wanted int
	err    error
	target int64
	most   int
}

func (d *database) WorkersWanted(_ context.Context, target int64, most int) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.target, d.most = target, most
	if most > 0 {
		return min(d.wanted, most), d.err
	}
	return d.wanted, d.err
}

func (d *database) say(wanted int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wanted, d.err = wanted, err
}

// start serves a scaler and returns a connection to it, and what ends it.
func start(t *testing.T, d *database) (*grpc.ClientConn, func() error) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() {
		served <- scaler.Serve(ctx, listener, scaler.Config{Database: d, PushInterval: time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	}()
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	stop := sync.OnceValue(func() error {
		cancel()
		return <-served
	})
	t.Cleanup(func() {
		_ = conn.Close()
		require.NoError(t, stop())
	})
	return conn, stop
}

func ask(t *testing.T, conn *grpc.ClientConn, method string, question *dynamicpb.Message, answer string) (*dynamicpb.Message, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), ceiling)
	defer cancel()
	a := message(answer)
	return a, conn.Invoke(ctx, "/externalscaler.ExternalScaler/"+method, question, a)
}

func TestAnswersAreKEDAs(t *testing.T) {
	t.Parallel()
	d := &database{wanted: 7}
	conn, _ := start(t, d)
	metadata := map[string]string{"target": "500", "most": "20", "scalerAddress": "x:1"}

	a, err := ask(t, conn, "IsActive", ref(metadata), "IsActiveResponse")
	require.NoError(t, err)
	require.True(t, get(a, "result").Bool())
	require.EqualValues(t, 500, d.target)
	require.Equal(t, 1, d.most, "whether there is anything at all is cheap to know")

	a, err = ask(t, conn, "GetMetricSpec", ref(metadata), "GetMetricSpecResponse")
	require.NoError(t, err)
	specs := get(a, "metricSpecs").List()
	require.Equal(t, 1, specs.Len())
	require.Equal(t, scaler.MetricName, get(specs.Get(0).Message(), "metricName").String())
	require.EqualValues(t, 1, get(specs.Get(0).Message(), "targetSize").Int())
	require.EqualValues(t, 1, get(specs.Get(0).Message(), "targetSizeFloat").Float())

	q := message("GetMetricsRequest")
	set(q, "scaledObjectRef", ref(metadata).ProtoReflect())
	set(q, "metricName", scaler.MetricName)
	a, err = ask(t, conn, "GetMetrics", q, "GetMetricsResponse")
	require.NoError(t, err)
	values := get(a, "metricValues").List()
	require.Equal(t, 1, values.Len())
	require.EqualValues(t, 7, get(values.Get(0).Message(), "metricValue").Int())
	require.EqualValues(t, 7, get(values.Get(0).Message(), "metricValueFloat").Float())
	require.Equal(t, 20, d.most)

	d.say(0, nil)
	a, err = ask(t, conn, "IsActive", ref(nil), "IsActiveResponse")
	require.NoError(t, err)
	require.False(t, get(a, "result").Bool())
	require.EqualValues(t, scaler.DefaultTarget, d.target)

	_, err = ask(t, conn, "StreamMetricSpec", ref(nil), "GetMetricSpecResponse")
	require.Equal(t, codes.Unimplemented, status.Code(err), "which KEDA knows to take")
	health, err := healthpb.NewHealthClient(conn).Check(context.Background(), &healthpb.HealthCheckRequest{})
	require.NoError(t, err)
	require.Equal(t, healthpb.HealthCheckResponse_SERVING, health.Status)
}

func TestWhatCannotBeAnswered(t *testing.T) {
	t.Parallel()
	d := &database{}
	conn, _ := start(t, d)
	for _, metadata := range []map[string]string{{"target": "0"}, {"target": "many"}, {"most": "-1"}, {"most": "99999999999"}} {
		_, err := ask(t, conn, "IsActive", ref(metadata), "IsActiveResponse")
		require.Equal(t, codes.InvalidArgument, status.Code(err), metadata)
		require.ErrorContains(t, err, "ns/pool")
		_, err = ask(t, conn, "GetMetricSpec", ref(metadata), "GetMetricSpecResponse")
		require.Equal(t, codes.InvalidArgument, status.Code(err), metadata)
	}
	d.say(3, errors.New("postgres://secret"))
	_, err := ask(t, conn, "IsActive", ref(nil), "IsActiveResponse")
	require.Equal(t, codes.Unavailable, status.Code(err), "so that KEDA falls back")
	require.NotContains(t, err.Error(), "secret")
}

func TestPushes(t *testing.T) {
	t.Parallel()
	d := &database{}
	conn, stop := start(t, d)
	ctx, cancel := context.WithTimeout(context.Background(), ceiling)
	defer cancel()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/externalscaler.ExternalScaler/StreamIsActive")
	require.NoError(t, err)
	require.NoError(t, stream.SendMsg(ref(nil)))
	require.NoError(t, stream.CloseSend())
	next := func() bool {
		a := message("IsActiveResponse")
		require.NoError(t, stream.RecvMsg(a))
		return get(a, "result").Bool()
	}
	require.False(t, next(), "at once")
	d.say(1, nil)
	require.True(t, next(), "when it changes")
	d.say(0, errors.New("away"))
	d.say(5, nil)
	d.say(0, nil)
	require.False(t, next(), "and nothing in between that is no change")
	require.NoError(t, stop())
	err = stream.RecvMsg(message("IsActiveResponse"))
	require.Error(t, err)
	require.NotErrorIs(t, err, io.EOF, "KEDA connects again")
}
