"""The wire form of a topology, generated from the `.proto` beside it; a unit test holds the two together.

By `python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. bringup_topology.proto` of grpcio-tools 1.49.1:
generated code refuses a protobuf older than its generator, and must load beside that of TensorFlow, JAX or PyTorch.
"""
