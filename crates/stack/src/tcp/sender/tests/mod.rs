mod hand;
mod losing;
mod path;
mod scoreboard;
mod sending;
mod sim;
mod timing;
mod transfers;
