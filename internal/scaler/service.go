package scaler

import (
	"context"

	"google.golang.org/grpc"
)

// The services, as their .proto files name them.
var (
	scalerService = grpc.ServiceDesc{
		ServiceName: "externalscaler.ExternalScaler", HandlerType: (*any)(nil), Metadata: "externalscaler.proto",
		Methods: []grpc.MethodDesc{
			{MethodName: "IsActive", Handler: unary((*scaler).isActive)},
			{MethodName: "GetMetricSpec", Handler: unary((*scaler).metricSpec)},
			{MethodName: "GetMetrics", Handler: unary((*scaler).metrics)},
		},
		Streams: []grpc.StreamDesc{{StreamName: "StreamIsActive", ServerStreams: true, Handler: func(srv any, stream grpc.ServerStream) error {
			var ref objectRef
			if err := stream.RecvMsg(&ref); err != nil {
				return err
			}
			return srv.(*scaler).push(&ref, stream)
		}}},
	}
	healthService = grpc.ServiceDesc{
		ServiceName: "grpc.health.v1.Health", HandlerType: (*any)(nil), Metadata: "grpc/health/v1/health.proto",
		Methods: []grpc.MethodDesc{{MethodName: "Check", Handler: unary((*scaler).health)}},
	}
)

// unary makes a handler of a method with one question and one answer.
func unary[Q, A any](answer func(*scaler, context.Context, *Q) (*A, error)) grpc.MethodHandler {
	return func(srv any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		question := new(Q)
		if err := decode(question); err != nil {
			return nil, err
		}
		return answer(srv.(*scaler), ctx, question)
	}
}
