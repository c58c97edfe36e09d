mod sim;
mod transfers;
